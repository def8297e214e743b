//! Writes a call as an HTTP request.

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, HOST, HeaderMap, HeaderName, HeaderValue, USER_AGENT};
use http::{Method, Request, Uri};
use http_body_util::Full;
use waypost_config::Secret;
use waypost_hub::call::Call;
use waypost_wire::header::{self, PARAM_PREFIX};
use waypost_wire::id::Id;
use waypost_wire::message;
use waypost_wire::method;
use waypost_wire::version;

use super::pool;
use crate::fault::Fault;

const METHOD: HeaderName = HeaderName::from_static(header::METHOD);
const NAME: HeaderName = HeaderName::from_static(header::NAME);
const PROTOCOL_VERSION: HeaderName = HeaderName::from_static(header::PROTOCOL_VERSION);

/// Where requests go and what is the same in all of them.
#[derive(Debug)]
pub(crate) struct Template {
    uri: Uri,
    /// What never changes from call to call, configured headers included.
    fixed: HeaderMap,
    /// The same with what most calls add, so that a copy needs neither new values nor more room.
    usual: HeaderMap,
}

impl Template {
    /// Prepares requests to `uri` with the configured headers, which win over ours. Those of the
    /// protocol are never among them: the configuration refuses them.
    pub(crate) fn new(uri: Uri, configured: &[(String, Secret)]) -> Result<Self, Fault> {
        let mut fixed = HeaderMap::with_capacity(8 + configured.len());
        fixed.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let both = HeaderValue::from_static("application/json, text/event-stream");
        fixed.insert(ACCEPT, both);
        let agent = concat!("waypost/", env!("CARGO_PKG_VERSION"));
        fixed.insert(USER_AGENT, HeaderValue::from_static(agent));
        for (name, value) in configured {
            let refused = || Fault::Header { name: name.clone() };
            let mut value = HeaderValue::from_str(value.expose()).map_err(|_| refused())?;
            value.set_sensitive(true);
            let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| refused())?;
            fixed.insert(name, value);
        }
        let mut usual = fixed.clone();
        put(&mut usual, PROTOCOL_VERSION, version::MODERN);
        put(&mut usual, METHOD, method::TOOLS_CALL);
        put(&mut usual, NAME, "");
        if let Some(host) = pool::host(&uri) {
            usual.entry(HOST).or_insert(host);
        }
        Ok(Self { uri, fixed, usual })
    }

    /// Where requests go.
    pub(crate) fn uri(&self) -> &Uri {
        &self.uri
    }

    /// A request with what is the same in all of them, and nothing else.
    pub(crate) fn bare(&self, method: Method, body: Bytes) -> Request<Full<Bytes>> {
        self.with(self.fixed.clone(), method, body)
    }

    fn with(&self, headers: HeaderMap, method: Method, body: Bytes) -> Request<Full<Bytes>> {
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = method;
        *request.uri_mut() = self.uri.clone();
        *request.headers_mut() = headers;
        request
    }

    /// The request for `call`. No header of the caller's is in it but its `Mcp-Param-*`: the hub has
    /// made those that the tool declares from the arguments, others go as received.
    pub(crate) fn request(&self, call: &Call, id: &Id) -> Request<Full<Bytes>> {
        let name = method::name_member(&call.method);
        let name = name.and_then(|member| call.params.str(member));
        let body = message::encode_call(id, &call.method, &call.params, &call.meta);
        let mut request = self.with(self.usual.clone(), Method::POST, body);
        let headers = request.headers_mut();
        if call.meta.protocol_version != version::MODERN {
            put(headers, PROTOCOL_VERSION, &call.meta.protocol_version);
        }
        if call.method != method::TOOLS_CALL {
            put(headers, METHOD, &call.method);
        }
        match name {
            Some(name) => put(headers, NAME, &name),
            None => drop(headers.remove(NAME)),
        }
        for (name, value) in &call.headers.params {
            if !name.starts_with(PARAM_PREFIX) {
                continue;
            }
            let name = HeaderName::from_bytes(name.as_bytes());
            if let (Ok(name), Ok(value)) = (name, HeaderValue::from_str(value)) {
                headers.insert(name, value);
            }
        }
        request
    }
}

/// Adds `text` in the form that header values have (specification: transports, value encoding).
fn put(headers: &mut HeaderMap, name: HeaderName, text: &str) {
    // Fails for no text: what is not visible ASCII is encoded.
    if let Ok(value) = HeaderValue::from_str(&header::encode(text)) {
        headers.insert(name, value);
    }
}
