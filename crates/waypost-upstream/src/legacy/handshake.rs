//! How a session begins (2025-11-25: lifecycle).

use waypost_hub::upstream::Facts;
use waypost_wire::error::ErrorObject;
use waypost_wire::id::Id;
use waypost_wire::message::{self, Outcome};
use waypost_wire::method;
use waypost_wire::object::Object;
use waypost_wire::raw::Raw;
use waypost_wire::version;

use super::link::Link;
use super::outgrown;
use super::table::Table;
use crate::fault::Fault;

/// The version offered; the server answers with the one that is spoken then.
const OFFERED: &str = "2025-11-25";

const INITIALIZED: &str = "notifications/initialized";

/// What a session is opened with.
#[derive(Clone, Debug)]
pub(crate) struct Hello {
    /// What the server may ask of this session's callers.
    pub(crate) capabilities: Object,
    pub(crate) client_info: Raw,
}

impl Hello {
    /// Whether the server is to be told when the client's roots change.
    pub(crate) fn promises_roots(&self) -> bool {
        let roots = self.capabilities.get("roots");
        let roots = roots.and_then(|raw| raw.as_object().ok());
        let promised = roots.and_then(|roots| roots.get("listChanged").and_then(Raw::as_bool));
        promised.unwrap_or_default()
    }
}

/// Opens the session; nothing else is sent before the server has accepted it.
///
/// # Errors
/// [`Fault::Modern`] for a server that turns out not to want sessions, [`Fault::Version`] for one
/// of a version that is not known, and why it refused or did not answer.
pub(crate) async fn shake(table: &Table, link: &dyn Link, hello: &Hello) -> Result<Facts, Fault> {
    let (id, answer) = table.plain()?;
    let params = Object::from_iter([
        ("protocolVersion", Raw::string(OFFERED)),
        ("capabilities", Raw::from(&hello.capabilities)),
        ("clientInfo", hello.client_info.clone()),
    ]);
    let request = message::encode_request(&Id::number(id), method::INITIALIZE, &params);
    link.request(id, request).await?;
    let result = match answer.await.unwrap_or(Err(Fault::NoEnd))? {
        Outcome::Result(raw) => raw.as_object().map_err(Fault::Malformed)?,
        Outcome::Error(error) => return Err(refused(&error)),
    };
    let spoken = result.string("protocolVersion").unwrap_or_default();
    if !version::is_legacy(&spoken) {
        return Err(Fault::Version);
    }
    link.agreed(&spoken);
    link.tell(message::encode_notification(INITIALIZED, &Object::new()))
        .await?;
    link.opened();
    facts(&result, spoken)
}

fn refused(error: &ErrorObject) -> Fault {
    if outgrown::says_so(error, false) {
        return Fault::Modern;
    }
    let code = error.code();
    Fault::NoSession { code }
}

fn facts(result: &Object, spoken: String) -> Result<Facts, Fault> {
    let capabilities = match result.get("capabilities") {
        Some(raw) => raw.as_object().map_err(Fault::Malformed)?,
        None => Object::new(),
    };
    Ok(Facts {
        versions: vec![spoken.clone()],
        protocol: spoken,
        capabilities,
        server_info: result
            .get("serverInfo")
            .filter(|raw| raw.is_object())
            .cloned(),
        instructions: result.string("instructions"),
    })
}
