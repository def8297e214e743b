//! Small media, base64.

use serde_json::{Value, json};

/// One pixel of blue.
pub(crate) const PNG: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGO4ZqUPAAMpAUDKNOoQAAAAAElFTkSuQmCC";
/// A millisecond of sound.
pub(crate) const WAV: &str =
    "UklGRiwAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YQgAAACAoIBggKCAYA==";

/// The PNG as a content item.
pub(crate) fn image() -> Value {
    json!({ "type": "image", "data": PNG, "mimeType": "image/png" })
}
