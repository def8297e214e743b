//! Finds out who calls, by bearer key.
//!
//! Only hashes of keys are held. Each request is compared with all of them in constant time, so
//! that the time of an answer tells nothing about any. The key goes no further than here: the
//! header is taken out, so that nothing behind can pass it on to an upstream.

use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::future::{Either, Ready, ready};
use http::header::{AUTHORIZATION, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use serde_json::json;
use sha2::{Digest as _, Sha256};
use subtle::{ConditionallySelectable as _, ConstantTimeEq as _};
use tower::{Layer, Service};
use waypost_config::Key;
use waypost_hub::call::Principal;
use waypost_wire::code;

use crate::event::RequestRefused;
use crate::headers::bearer;
use crate::refuse;

/// Puts the caller's [`Principal`] into the request's extensions, or answers 401.
///
/// Without keys everybody is the anonymous principal. On an axum router this belongs on
/// `route_layer`: the paths where clients look for OAuth stay a 404 then.
#[derive(Clone, Debug)]
pub struct AuthenticateLayer {
    keys: Arc<[Known]>,
}

/// The service that [`AuthenticateLayer`] makes.
#[derive(Clone, Debug)]
pub struct Authenticate<S> {
    inner: S,
    keys: Arc<[Known]>,
}

#[derive(Debug)]
struct Known {
    principal: Principal,
    key: Key,
}

// === impl AuthenticateLayer ===

impl AuthenticateLayer {
    /// Knows the callers of `auth.keys`.
    #[must_use]
    pub fn new(keys: &[Key]) -> Self {
        let known = keys.iter().map(|key| Known {
            principal: Principal::new(&key.name),
            key: key.clone(),
        });
        Self {
            keys: known.collect(),
        }
    }
}

impl<S> Layer<S> for AuthenticateLayer {
    type Service = Authenticate<S>;

    fn layer(&self, inner: S) -> Authenticate<S> {
        Authenticate {
            inner,
            keys: Arc::clone(&self.keys),
        }
    }
}

// === impl Authenticate ===

impl<S, B, R> Service<Request<B>> for Authenticate<S>
where
    S: Service<Request<B>, Response = Response<R>>,
    R: From<Bytes>,
{
    type Response = Response<R>;
    type Error = S::Error;
    type Future = Either<S::Future, Ready<Result<Response<R>, S::Error>>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        let caller = principal(&self.keys, request.headers());
        request.headers_mut().remove(AUTHORIZATION);
        match caller {
            Ok(principal) => {
                request.extensions_mut().insert(principal);
                Either::Left(self.inner.call(request))
            }
            Err(fault) => Either::Right(ready(Ok(refused(fault)))),
        }
    }
}

/// Why a caller is nobody.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
enum Fault {
    #[error("a bearer key is needed")]
    Missing,
    #[error("the bearer key is not known")]
    Unknown,
    #[error("header `authorization` is there more than once")]
    Repeated,
}

impl Fault {
    /// What was there, for the log; never the key.
    fn presented(self) -> &'static str {
        match self {
            Self::Missing => "no key",
            Self::Unknown => "an unknown key",
            Self::Repeated => "several keys",
        }
    }
}

fn principal(keys: &[Known], headers: &HeaderMap) -> Result<Principal, Fault> {
    if keys.is_empty() {
        return Ok(Principal::anonymous());
    }
    if headers.get_all(AUTHORIZATION).iter().nth(1).is_some() {
        return Err(Fault::Repeated);
    }
    let token = bearer(headers).ok_or(Fault::Missing)?;
    let hash: [u8; 32] = Sha256::digest(token).into();
    // Zero is nobody; whichever key fits, all are looked at.
    let mut found = 0_u64;
    for (number, known) in (1_u64..).zip(keys) {
        let same = known.key.hash.bytes().ct_eq(&hash);
        found.conditional_assign(&number, same);
    }
    let at = usize::try_from(found).ok().and_then(|n| n.checked_sub(1));
    let known = at.and_then(|at| keys.get(at)).ok_or(Fault::Unknown)?;
    Ok(known.principal.clone())
}

fn refused<R: From<Bytes>>(fault: Fault) -> Response<R> {
    RequestRefused {
        reason: "unauthenticated",
        presented: fault.presented(),
    }
    .emit();
    let data = json!({ "hint": "send `Authorization: Bearer <key>`" });
    let message = fault.to_string();
    if fault == Fault::Repeated {
        // Not a question of which key: a challenge would make clients look for another.
        let status = StatusCode::BAD_REQUEST;
        return refuse::answer(status, code::INVALID_REQUEST, &message, &data);
    }
    let status = StatusCode::UNAUTHORIZED;
    let mut response = refuse::answer(status, code::INVALID_REQUEST, &message, &data);
    // No metadata address: there is no authorization server to be found, and clients follow it.
    let challenge = HeaderValue::from_static("Bearer");
    response.headers_mut().insert(WWW_AUTHENTICATE, challenge);
    response
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use http_body_util::{BodyExt as _, Full};
    use tower::{ServiceExt as _, service_fn};
    use waypost_config::KeyHash;

    use super::*;

    type Body = Full<Bytes>;

    fn keys() -> Vec<Key> {
        ["ci", "alice", "bob"]
            .map(|name| Key {
                name: name.to_owned(),
                hash: KeyHash::of(&format!("wp_{name}")),
                endpoint: None,
            })
            .into()
    }

    /// Answers with the principal and whether the key was still there.
    async fn send(keys: &[Key], authorization: &[&str]) -> Response<Body> {
        let inner = service_fn(|request: Request<()>| async move {
            let principal: &Principal = request.extensions().get().unwrap();
            assert!(!request.headers().contains_key(AUTHORIZATION));
            Ok::<_, Infallible>(Response::new(Body::from(principal.to_string())))
        });
        let mut request = Request::post("/mcp");
        for value in authorization {
            request = request.header(AUTHORIZATION, *value);
        }
        let service = AuthenticateLayer::new(keys).layer(inner);
        let request = request.body(()).unwrap();
        service.oneshot(request).await.unwrap()
    }

    async fn check(keys: &[Key], authorization: &[&str], expected: Result<&str, ()>) {
        let response = send(keys, authorization).await;
        let status = response.status();
        let challenge = response.headers().get(WWW_AUTHENTICATE).cloned();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        if let Ok(name) = expected {
            assert_eq!((status.as_u16(), &*body), (200, name.as_bytes()));
        } else {
            assert_eq!(status, 401, "{authorization:?}");
            assert_eq!(challenge.unwrap(), "Bearer", "no invented metadata");
            let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
            assert_eq!(body["jsonrpc"], "2.0");
            assert!(!body.to_string().contains("wp_"), "the key is not repeated");
        }
    }

    #[tokio::test]
    async fn each_key_is_its_own_principal() {
        check(&keys(), &["Bearer wp_ci"], Ok("ci")).await;
        check(&keys(), &["Bearer wp_alice"], Ok("alice")).await;
        check(&keys(), &["bearer   wp_bob "], Ok("bob")).await;
    }

    #[tokio::test]
    async fn r15_without_a_known_key_there_is_a_bare_challenge() {
        let hash = KeyHash::of("wp_ci").to_string();
        for authorization in [
            &[][..],
            &[""],
            &["Bearer"],
            &["Bearer "],
            &["Bearer wp_nobody"],
            &["Bearer WP_CI"],
            &["Basic wp_ci"],
            &["wp_ci"],
            &[hash.as_str()],
        ] {
            check(&keys(), authorization, Err(())).await;
        }
    }

    #[test]
    fn the_log_tells_a_missing_key_from_a_wrong_one() {
        let known = AuthenticateLayer::new(&keys()).keys;
        let presented = |lines: &[&'static str]| {
            let lines = lines.iter().map(|line| HeaderValue::from_static(line));
            let headers = lines.map(|line| (AUTHORIZATION, line)).collect();
            principal(&known, &headers).unwrap_err().presented()
        };
        assert_eq!(presented(&[]), "no key");
        assert_eq!(presented(&["Basic x"]), "no key");
        assert_eq!(presented(&["Bearer wp_nobody"]), "an unknown key");
        assert_eq!(presented(&["Bearer wp_ci", "Bearer wp_ci"]), "several keys");
    }

    #[tokio::test]
    async fn two_keys_are_refused_and_said_to_be_two() {
        for second in ["Bearer wp_ci", "Bearer wp_alice", "Basic x"] {
            let response = send(&keys(), &["Bearer wp_ci", second]).await;
            assert_eq!(response.status(), 400, "{second}");
            assert!(!response.headers().contains_key(WWW_AUTHENTICATE));
            let body = response.into_body().collect().await.unwrap().to_bytes();
            let text = String::from_utf8(body.to_vec()).unwrap();
            assert!(
                text.contains("`authorization` is there more than once"),
                "{text}"
            );
        }
    }

    #[tokio::test]
    async fn r15_without_keys_everybody_is_anonymous() {
        check(&[], &[], Ok("anonymous")).await;
        check(&[], &["Bearer anything"], Ok("anonymous")).await;
    }
}
