//! How a session begins (2025-11-25: lifecycle).

use std::convert::Infallible;
use std::sync::{Arc, OnceLock};

use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use waypost_hub::upstream::{BoxFuture, Facts};
use waypost_wire::error::ErrorObject;
use waypost_wire::id::Id;
use waypost_wire::message::{self, Outcome};
use waypost_wire::method;
use waypost_wire::object::Object;
use waypost_wire::raw::Raw;
use waypost_wire::version;

use super::link::Link;
use super::outgrown;
use super::session::Opening;
use super::table::Table;
use super::telling::tell_all;
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

/// A session that has begun.
pub(super) struct Begun {
    pub(super) link: Arc<dyn Link>,
    pub(super) facts: Facts,
    /// Tells the server what it is to be told, for as long as it is polled.
    pub(super) telling: BoxFuture<'static, Infallible>,
    /// Cancelled when the server turns out to have forgotten the session.
    pub(super) retiring: CancellationToken,
}

/// Dials and opens the session, in the time there is; what fails is closed behind.
///
/// # Errors
/// As [`shake`]; [`Fault::Late`] when it took too long.
pub(super) async fn begin(opening: &Opening, table: &Arc<Table>) -> Result<Begun, Fault> {
    let mut dialled = None;
    let shake = async {
        let link = opening.dial.dial(Arc::clone(table) as _).await?;
        dialled = Some(Arc::clone(&link));
        let session = Arc::new(OnceLock::<CancellationToken>::new());
        let stands = Arc::clone(&session);
        // What is lost before there is a session is none.
        let lost = move || stands.get().into_iter().for_each(CancellationToken::cancel);
        let telling = tell_all(Arc::clone(table), Arc::clone(&link), lost);
        let mut telling: BoxFuture<'static, _> = Box::pin(telling);
        let shaken = tokio::select! {
            shaken = shake(table, &*link, &opening.hello) => shaken,
            // The server may ask whether we are there.
            never = &mut telling => match never {},
        };
        let facts = shaken?;
        let retiring = session.get_or_init(CancellationToken::new).clone();
        Ok(Begun {
            link,
            facts,
            telling,
            retiring,
        })
    };
    let late = |_| Err(Fault::Late(opening.within));
    let begun = timeout(opening.within, shake).await.unwrap_or_else(late);
    if let (Err(_), Some(link)) = (&begun, dialled) {
        opening.tasks.spawn(|_| async move { link.close().await });
    }
    begun
}

/// Opens the session; nothing else is sent before the server has accepted it.
///
/// # Errors
/// [`Fault::Modern`] for a server that turns out not to want sessions, [`Fault::Version`] for one
/// of a version that is not known, and why it refused or did not answer.
async fn shake(table: &Table, link: &dyn Link, hello: &Hello) -> Result<Facts, Fault> {
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
    if outgrown::refuses_sessions(error) {
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
