//! What of a caller's declarations travels on.

use waypost_config::config::ExposedExtension;
use waypost_wire::capability::TASKS;

use crate::call::Call;

/// Extensions that the gateway carries without being told to.
const CARRIED: [&str; 2] = [TASKS, "io.modelcontextprotocol/ui"];

/// Takes out the extensions that the gateway cannot carry: a server that is told of one may
/// answer in a way that would not survive the way back.
pub(crate) fn strip_extensions(call: &mut Call, expose: &[ExposedExtension]) {
    let carried = |id: &str| CARRIED.contains(&id) || expose.iter().any(|e| e.id == id);
    let declared = call.meta.capabilities.extensions();
    if declared.iter().all(|(id, _)| carried(id)) {
        return;
    }
    let kept = declared.iter().filter(|(id, _)| carried(id));
    let kept = kept.map(|(id, settings)| (id, settings.clone())).collect();
    call.meta.capabilities = call.meta.capabilities.with_extensions(kept);
}
