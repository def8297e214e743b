//! Asks a server which era it is of (specification: versioning, backward compatibility).
//!
//! Only `server/discover` tells: servers of the session era answer other modern requests without
//! any handshake.

use std::future::Future;
use std::sync::Arc;

use http::StatusCode;
use waypost_hub::call::Call;
use waypost_hub::error::{CallError, Kind};
use waypost_hub::reply::{End, Reply};
use waypost_hub::upstream::Facts;
use waypost_wire::code;
use waypost_wire::error::{ErrorObject, Malformed};
use waypost_wire::meta;
use waypost_wire::method;
use waypost_wire::object::Object;
use waypost_wire::version;

use crate::fault::Fault;
use crate::legacy::unopened;

/// An answer and, over HTTP, the status it came with.
#[derive(Debug)]
pub(crate) struct Answered {
    pub(crate) status: Option<StatusCode>,
    /// An error whose id is not the request's: the server has not read that far.
    pub(crate) nameless: bool,
    pub(crate) reply: Reply,
}

/// What `server/discover` taught.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Discovery {
    /// The server speaks the stateless protocol.
    Modern(Facts),
    /// The server speaks only the session era, and says so.
    Legacy,
    /// What came, or did not come, is nothing that a server of the stateless protocol does: one
    /// of which nothing is known is taken for one of the session era. It is also what a proxy
    /// without a route does, so a server that is known to be modern has only failed. In our words.
    Unrecognised(String),
}

impl Discovery {
    /// What the server says of itself, where it is modern.
    ///
    /// # Errors
    /// [`Kind::BadUpstream`] for one that is not, or of which that is not certain.
    pub(crate) fn modern(self, upstream: &Arc<str>) -> Result<Facts, CallError> {
        let fail = |why| CallError::upstream(Kind::BadUpstream, upstream).detail(why);
        match self {
            Self::Modern(facts) => Ok(facts),
            Self::Legacy => Err(fail(
                "speaks only protocol versions before 2026-07-28".to_owned(),
            )),
            Self::Unrecognised(why) => Err(fail(why)),
        }
    }
}

/// What one answer to the probe means.
#[derive(Debug)]
enum Verdict {
    Decided(Discovery),
    /// The server knows one of our modern versions and asks to be asked with it.
    Again,
    /// A modern server that does not describe itself, or an answer that says nothing of the era.
    Failed(Fault),
}

/// Asks through `send`; once more when the server names a version that we speak.
pub(crate) async fn discover<S, F>(upstream: &Arc<str>, send: S) -> Result<Discovery, CallError>
where
    S: Fn(Call) -> F,
    F: Future<Output = Result<Answered, Fault>>,
{
    let ask = || send(Call::own(method::DISCOVER, Object::new()));
    let verdict = match judge(ask().await, upstream).await? {
        Verdict::Again => judge(ask().await, upstream).await?,
        verdict => verdict,
    };
    let fault = match verdict {
        Verdict::Decided(discovery) => return Ok(discovery),
        Verdict::Failed(fault) => fault,
        Verdict::Again => Fault::Refused {
            code: code::UNSUPPORTED_VERSION,
        },
    };
    Err(fault.into_call(upstream))
}

async fn judge(
    answered: Result<Answered, Fault>,
    upstream: &Arc<str>,
) -> Result<Verdict, CallError> {
    let answered = match answered {
        Ok(answered) => answered,
        // What a server says to a request that it has no idea of.
        Err(
            fault @ Fault::Status {
                status: 400 | 404 | 405 | 406 | 415 | 422,
                ..
            },
        ) => return Ok(unrecognised(&fault)),
        Err(fault) => return Err(fault.into_call(upstream)),
    };
    let status = answered.status;
    match answered.reply.into_end_of(upstream).await? {
        End::Complete(result) => described(&result)
            .map(Verdict::Decided)
            .map_err(|malformed| Fault::Malformed(malformed).into_call(upstream)),
        End::Error(error) => Ok(refused(&error, status)),
        End::InputRequired(_) | End::Task(_) => Err(Fault::ResultType.into_call(upstream)),
    }
}

fn described(result: &Object) -> Result<Discovery, Malformed> {
    let Some(versions) = result.get("supportedVersions") else {
        // Some answer every method that they do not know with an empty result.
        let why = "answered `server/discover` without `supportedVersions`";
        return Ok(Discovery::Unrecognised(why.to_owned()));
    };
    let wrong = Malformed::Wrong {
        member: "supportedVersions",
        expected: "a list of strings",
    };
    let versions: Vec<String> = versions.decode().ok_or(wrong)?;
    // Some servers list the versions of both eras, the old ones first.
    if !versions.iter().any(|v| version::is_modern(v)) {
        return Ok(Discovery::Legacy);
    }
    let object = |member| match result.get(member) {
        Some(raw) => raw.as_object(),
        None => Ok(Object::new()),
    };
    Ok(Discovery::Modern(Facts {
        protocol: version::MODERN.to_owned(),
        versions,
        capabilities: object("capabilities")?,
        server_info: object(meta::META)?.get(meta::SERVER_INFO).cloned(),
        instructions: result.string("instructions"),
    }))
}

fn refused(error: &ErrorObject, status: Option<StatusCode>) -> Verdict {
    let code = error.code();
    // Over HTTP that is what a proxy may say that has no route.
    if status.is_none() && unopened::says_so(error) {
        return Verdict::Decided(Discovery::Legacy);
    }
    match code {
        code::HEADER_MISMATCH | code::MISSING_CAPABILITY => {
            Verdict::Failed(Fault::Refused { code })
        }
        code::UNSUPPORTED_VERSION => match supported(error) {
            Some(list) if list.iter().any(|v| version::is_modern(v)) => Verdict::Again,
            // A server of a later modern era is not one of the session era.
            Some(list) if list.iter().any(|v| version::is_legacy(v)) => {
                Verdict::Decided(Discovery::Legacy)
            }
            _ => Verdict::Failed(Fault::Refused { code }),
        },
        code::METHOD_NOT_FOUND | code::INVALID_PARAMS => Verdict::Decided(Discovery::Legacy),
        _ => match status.map(|status| status.as_u16()) {
            Some(status @ (401 | 403 | 408 | 429 | 500..=599)) => Verdict::Failed(Fault::Status {
                status,
                retry_after: None,
            }),
            // Answered properly, failed inside: that is no opinion about the method.
            Some(200) | None if code == code::INTERNAL_ERROR => {
                Verdict::Failed(Fault::Refused { code })
            }
            // The codes that servers of the session era refuse an unknown opening with are
            // their own.
            _ => unrecognised(&Fault::Refused { code }),
        },
    }
}

fn unrecognised(fault: &Fault) -> Verdict {
    Verdict::Decided(Discovery::Unrecognised(fault.to_string()))
}

fn supported(error: &ErrorObject) -> Option<Vec<String>> {
    error.data()?.as_object().ok()?.get("supported")?.decode()
}
