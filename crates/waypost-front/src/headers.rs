//! The protocol's request headers, which must say what the body says.
//!
//! Balancers and rules in front route on these headers, so one that differs from the body is a
//! way past them. All decisions behind this point are made from the body alone.

use std::borrow::Cow;

use http::header::GetAll;
use http::{HeaderMap, HeaderName, HeaderValue};
use waypost_hub::call::CallHeaders;
use waypost_wire::header::{self, METHOD, NAME, PARAM_PREFIX, PROTOCOL_VERSION};
use waypost_wire::method;
use waypost_wire::object::Object;

use crate::event;
use crate::refusal::{HeaderFault, Refusal};

// Names made once: one that is looked up by its text is read and hashed as if it were new.
const VERSION_LINE: HeaderName = HeaderName::from_static(PROTOCOL_VERSION);
const METHOD_LINE: HeaderName = HeaderName::from_static(METHOD);
const NAME_LINE: HeaderName = HeaderName::from_static(NAME);

/// The decoded value of a header that may be there once.
fn one<'a>(
    headers: &'a HeaderMap,
    name: &HeaderName,
    header: &'static str,
) -> Result<Option<Cow<'a, str>>, HeaderFault> {
    let mut lines = headers.get_all(name).iter();
    let Some(line) = lines.next() else {
        return Ok(None);
    };
    if lines.next().is_some() {
        return Err(HeaderFault::Repeated { header });
    }
    let text = line.to_str().ok();
    let value = text.and_then(|text| header::decode(text).ok());
    let unreadable = || HeaderFault::Unreadable {
        header: header.to_owned(),
    };
    value.map(Some).ok_or_else(unreadable)
}

/// The value of a header that belongs to the session era. Doubled on its way it still says one
/// thing; which of two different ones counts would be anybody's guess.
pub(crate) fn agreed<'a>(
    headers: &'a HeaderMap,
    header: &'static str,
) -> Result<Option<&'a HeaderValue>, Refusal> {
    same(&headers.get_all(header), header)
}

fn same<'a>(
    lines: &GetAll<'a, HeaderValue>,
    header: &'static str,
) -> Result<Option<&'a HeaderValue>, Refusal> {
    let mut lines = lines.iter();
    let first = lines.next();
    if lines.any(|line| Some(line) != first) {
        return Err(Refusal::Contradictory { header });
    }
    Ok(first)
}

/// The version header for finding the era: one that cannot be read is unlike any known version.
pub(crate) fn peek_version(headers: &HeaderMap) -> Result<Option<Cow<'_, str>>, Refusal> {
    let line = same(&headers.get_all(&VERSION_LINE), PROTOCOL_VERSION)?;
    Ok(line.map(|line| {
        let text = line.to_str().ok();
        let value = text.and_then(|text| header::decode(text).ok());
        value.unwrap_or_default()
    }))
}

/// Refuses unless the version header is there and says what `_meta` says.
pub(crate) fn check_version(headers: &HeaderMap, meta: &str) -> Result<(), HeaderFault> {
    let member = waypost_wire::meta::PROTOCOL_VERSION;
    must_equal(headers, (&VERSION_LINE, PROTOCOL_VERSION), member, meta)
}

/// Refuses unless `Mcp-Method` and `Mcp-Name` say what the body says; keeps what routing needs.
pub(crate) fn check(
    headers: &HeaderMap,
    method: &str,
    params: &Object,
    strict: bool,
) -> Result<CallHeaders, HeaderFault> {
    must_equal(headers, (&METHOD_LINE, METHOD), "method", method)?;
    check_name(headers, method, params, strict)?;
    Ok(CallHeaders {
        params: mirrored(headers)?,
        absent: false,
    })
}

fn must_equal(
    headers: &HeaderMap,
    (name, header): (&HeaderName, &'static str),
    member: &'static str,
    body: &str,
) -> Result<(), HeaderFault> {
    match one(headers, name, header)? {
        None => Err(HeaderFault::Missing { header }),
        Some(value) if value == body => Ok(()),
        Some(_) => Err(HeaderFault::Differs { header, member }),
    }
}

fn check_name(
    headers: &HeaderMap,
    method: &str,
    params: &Object,
    strict: bool,
) -> Result<(), HeaderFault> {
    let Some(member) = method::name_member(method) else {
        return Ok(());
    };
    let header = NAME;
    match (one(headers, &NAME_LINE, header)?, params.str(member)) {
        (Some(value), Some(name)) if value == name => Ok(()),
        (Some(_), _) => Err(HeaderFault::Differs { header, member }),
        // The body is at fault: whoever answers the method says so.
        (None, None) => Ok(()),
        // A widely used client never sends it on `tasks/*`.
        (None, Some(_)) if member == "taskId" && !strict => {
            event::task_without_name();
            Ok(())
        }
        (None, Some(_)) => Err(HeaderFault::Missing { header }),
    }
}

/// `Mcp-Param-*`, not decoded: which of them count, only the tool's schema says.
fn mirrored(headers: &HeaderMap) -> Result<Vec<(String, String)>, HeaderFault> {
    let mut params = Vec::new();
    for (name, value) in headers {
        if !name.as_str().starts_with(PARAM_PREFIX) {
            continue;
        }
        let name = name.as_str().to_owned();
        match value.to_str() {
            Ok(value) => params.push((name, value.to_owned())),
            Err(_) => return Err(HeaderFault::Unreadable { header: name }),
        }
    }
    Ok(params)
}
