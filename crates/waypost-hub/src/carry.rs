//! What of a caller's declarations travels on.

use waypost_config::config::ExposedExtension;
use waypost_wire::capability::{ClientCapabilities, TASKS};
use waypost_wire::raw::Raw;

use crate::call::Call;

/// Extensions that the gateway carries without being told to.
const CARRIED: [&str; 2] = [TASKS, "io.modelcontextprotocol/ui"];

/// Takes out the extensions that the gateway cannot carry: a server that is told of one may
/// answer in a way that would not survive the way back.
pub(crate) fn strip_extensions(call: &mut Call, expose: &[ExposedExtension]) {
    let Some(mut extensions) = call.meta.capabilities.extensions() else {
        return;
    };
    let carried = |id: &str| CARRIED.contains(&id) || expose.iter().any(|e| e.id == id);
    let stray: Vec<String> = extensions
        .iter()
        .map(|(id, _)| id.to_owned())
        .filter(|id| !carried(id))
        .collect();
    if stray.is_empty() {
        return;
    }
    for id in stray {
        extensions.remove(&id);
    }
    let mut object = call.meta.capabilities.object().clone();
    object.set("extensions", Raw::from(extensions));
    call.meta.capabilities = ClientCapabilities::new(object);
}
