//! JSON-RPC messages, read one level deep.

use bytes::Bytes;

use crate::batch::is_batch;
use crate::error::{ErrorObject, Malformed};
use crate::id::Id;
use crate::meta::RequestMeta;
use crate::object::{Object, write_string};
use crate::raw::Raw;

/// One JSON-RPC message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// Wants an answer.
    Request(Request),
    /// Wants none.
    Notification(Notification),
    /// Is one. An id of `null` (the other side could not read ours) is `None`.
    Response(Option<Id>, Outcome),
}

/// A request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Chosen by the sender; the answer repeats it.
    pub id: Id,
    /// As received; the names that Waypost knows are in [`crate::method`].
    pub method: String,
    /// Empty when the message has none.
    pub params: Object,
}

/// A notification.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notification {
    /// As received; those of the protocol begin with `notifications/`.
    pub method: String,
    /// Empty when the message has none.
    pub params: Object,
}

/// What a response says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The `result` member.
    Result(Raw),
    /// The `error` member.
    Error(ErrorObject),
}

/// A message that could not be read, and its id where that much was readable.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct Unreadable {
    /// Which request the error answer is for.
    pub id: Option<Id>,
    /// What is wrong with it.
    #[source]
    pub reason: Malformed,
}

impl Message {
    /// Reads one message.
    ///
    /// # Errors
    /// [`Unreadable`], with the id when the envelope had a valid one.
    pub fn parse(bytes: &Bytes) -> Result<Self, Unreadable> {
        if is_batch(bytes) {
            return Err(Unreadable {
                id: None,
                reason: Malformed::Batch,
            });
        }
        // In one pass, where nothing is wrong with it.
        let (envelope, params) = match Object::parse_both(bytes, "params") {
            Some(both) => both,
            None => match Object::parse(bytes) {
                Ok(envelope) => (envelope, None),
                Err(reason) => return Err(Unreadable { id: None, reason }),
            },
        };
        let id = envelope.get("id").map(|raw| Id::new(raw.clone()));
        let known = id.as_ref().and_then(|id| id.as_ref().ok()).cloned();
        Self::from_envelope(&envelope, id, params)
            .map_err(|reason| Unreadable { id: known, reason })
    }

    /// The id and the members of a response with a result, read in one pass. `None` for any other
    /// message, and for what is wrong: [`Self::parse`] says what it is.
    pub fn parse_result(bytes: &Bytes) -> Option<(Id, Object)> {
        let (envelope, result) = Object::parse_both(bytes, "result")?;
        let is_result =
            is_json_rpc(&envelope) && !envelope.contains("method") && !envelope.contains("error");
        let id = Id::new(envelope.get("id")?.clone()).ok()?;
        Some((id, result?)).filter(|_| is_result)
    }

    fn from_envelope(
        envelope: &Object,
        id: Option<Result<Id, Malformed>>,
        params: Option<Object>,
    ) -> Result<Self, Malformed> {
        if !is_json_rpc(envelope) && !is_bare_response(envelope) {
            return Err(Malformed::Wrong {
                member: "jsonrpc",
                expected: "\"2.0\"",
            });
        }
        let Some(method) = envelope.get("method") else {
            return Self::response(envelope, id);
        };
        let method = method.as_string().ok_or(Malformed::Wrong {
            member: "method",
            expected: "a string",
        })?;
        let params = match (params, envelope.get("params")) {
            (Some(params), _) => params,
            (None, None) => Object::new(),
            (None, Some(raw)) if !raw.is_object() => {
                return Err(Malformed::Wrong {
                    member: "params",
                    expected: "an object",
                });
            }
            (None, Some(raw)) => raw.as_object()?,
        };
        Ok(match id {
            Some(id) => Self::Request(Request {
                id: id?,
                method,
                params,
            }),
            None => Self::Notification(Notification { method, params }),
        })
    }

    fn response(envelope: &Object, id: Option<Result<Id, Malformed>>) -> Result<Self, Malformed> {
        let null = envelope.get("id").is_some_and(Raw::is_null);
        let id = if null { None } else { id.transpose()? };
        match (envelope.get("result"), envelope.get("error")) {
            (Some(result), None) => Ok(Self::Response(id, Outcome::Result(result.clone()))),
            (None, Some(error)) => Ok(Self::Response(
                id,
                Outcome::Error(ErrorObject::parse(error)?),
            )),
            (None, None) => Err(Malformed::Missing { member: "method" }),
            (Some(_), Some(_)) => Err(Malformed::Wrong {
                member: "result",
                expected: "absent beside `error`",
            }),
        }
    }
}

/// Whether it can be nothing but a response although it does not say of what: some servers leave
/// `jsonrpc` out.
fn is_bare_response(envelope: &Object) -> bool {
    let has = |member| envelope.contains(member);
    !has("jsonrpc") && !has("method") && has("id") && (has("result") || has("error"))
}

fn is_json_rpc(envelope: &Object) -> bool {
    let version = envelope.get("jsonrpc");
    version.is_some_and(|version| version.as_bytes() == &b"\"2.0\""[..])
}

/// The bytes of a request.
pub fn encode_request(id: &Id, method: &str, params: &Object) -> Bytes {
    let mut out = Vec::with_capacity(64 + method.len() + params.encoded_len());
    out.extend_from_slice(b"{\"jsonrpc\":\"2.0\",\"id\":");
    out.extend_from_slice(id.raw().as_bytes());
    out.extend_from_slice(b",\"method\":");
    write_string(&mut out, method);
    out.extend_from_slice(b",\"params\":");
    params.write(&mut out);
    out.push(b'}');
    out.into()
}

/// The bytes of a request with its `_meta`; `params` has none.
pub fn encode_call(id: &Id, method: &str, params: &Object, meta: &RequestMeta) -> Bytes {
    let room = 512 + method.len() + params.encoded_len() + meta.rest.encoded_len();
    let mut out = Vec::with_capacity(room);
    out.extend_from_slice(b"{\"jsonrpc\":\"2.0\",\"id\":");
    out.extend_from_slice(id.raw().as_bytes());
    out.extend_from_slice(b",\"method\":");
    write_string(&mut out, method);
    out.extend_from_slice(b",\"params\":{");
    params.write_members(&mut out);
    if !params.is_empty() {
        out.push(b',');
    }
    out.extend_from_slice(b"\"_meta\":");
    meta.write(&mut out);
    out.extend_from_slice(b"}}");
    out.into()
}

/// The bytes of a notification.
pub fn encode_notification(method: &str, params: &Object) -> Bytes {
    let mut out = Vec::with_capacity(48 + method.len() + params.encoded_len());
    out.extend_from_slice(b"{\"jsonrpc\":\"2.0\",\"method\":");
    write_string(&mut out, method);
    if !params.is_empty() {
        out.extend_from_slice(b",\"params\":");
        params.write(&mut out);
    }
    out.push(b'}');
    out.into()
}

/// The bytes of an answer with a result.
pub fn encode_result(id: &Id, result: &Object) -> Bytes {
    let mut out = Vec::with_capacity(64 + result.encoded_len());
    out.extend_from_slice(b"{\"jsonrpc\":\"2.0\",\"id\":");
    out.extend_from_slice(id.raw().as_bytes());
    out.extend_from_slice(b",\"result\":");
    result.write(&mut out);
    out.push(b'}');
    out.into()
}

/// The bytes of an answer with an error; `None` writes no `id`, as the modern schema wants it
/// when the request's could not be read.
pub fn encode_error(id: Option<&Id>, error: &ErrorObject) -> Bytes {
    let mut out = Vec::with_capacity(64 + error.as_bytes().len());
    out.extend_from_slice(b"{\"jsonrpc\":\"2.0\",");
    if let Some(id) = id {
        out.extend_from_slice(b"\"id\":");
        out.extend_from_slice(id.raw().as_bytes());
        out.push(b',');
    }
    out.extend_from_slice(b"\"error\":");
    out.extend_from_slice(error.as_bytes());
    out.push(b'}');
    out.into()
}

/// One message on one line: outside strings valid JSON has line breaks only between tokens, so
/// each becomes a space. Without this a raw value could smuggle a second message past every rule.
pub fn one_line(message: Bytes) -> Bytes {
    if memchr::memchr2(b'\n', b'\r', &message).is_none() {
        return message;
    }
    let mut line = message.to_vec();
    for byte in &mut line {
        if matches!(byte, b'\n' | b'\r') {
            *byte = b' ';
        }
    }
    line.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Message, Unreadable> {
        Message::parse(&Bytes::from(text.to_owned()))
    }

    #[track_caller]
    fn refused(text: &str, code: i64, id: Option<&str>, says: &str) {
        let error = parse(text).unwrap_err();
        assert_eq!(error.reason.code(), code, "{text}");
        assert_eq!(error.id.as_ref().map(|id| id.raw().text()), id, "{text}");
        assert_eq!(error.to_string(), says, "{text}");
    }

    #[test]
    fn r53_ids_that_are_not_ids_are_refused() {
        let says = "`id` must be a string or an integer";
        for id in ["null", "{}", "1.5", "true", "[]", "1e3"] {
            let text = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/list"}}"#);
            refused(&text, -32600, None, says);
        }
        let batches = "batches are not supported, send one message per request";
        refused("[]", -32600, None, batches);
        refused("null", -32600, None, "not a JSON object");
        refused(
            r#"{"jsonrpc":"2.0","#,
            -32700,
            None,
            "not valid JSON at line 1, column 17",
        );
    }

    #[test]
    fn r52_ids_keep_value_and_type() {
        let long = format!("\"{}\"", "x".repeat(4096));
        for id in ["1", "\"1\"", "0", "-1", "\"\"", long.as_str()] {
            let text = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/list"}}"#);
            let Ok(Message::Request(request)) = parse(&text) else {
                panic!("{text}")
            };
            assert_eq!(request.id.raw().text(), id);
            let answer = encode_result(&request.id, &Object::new());
            assert_eq!(
                answer,
                format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#)
            );
        }
    }

    #[test]
    fn an_envelope_that_repeats_a_key_is_refused() {
        let text = r#"{"jsonrpc":"2.0","id":1,"method":"a","method":"b"}"#;
        refused(text, -32600, None, "key `method` is repeated");
    }

    #[test]
    fn a_bad_part_still_gives_the_id() {
        let text = r#"{"jsonrpc":"2.0","id":"x","method":"a","params":[]}"#;
        refused(text, -32600, Some("\"x\""), "`params` must be an object");
        let text = r#"{"params":{"k":1,"k":2},"jsonrpc":"2.0","id":"x","method":"a"}"#;
        refused(text, -32600, Some("\"x\""), "key `k` is repeated");
        let text = r#"{"jsonrpc":"2.0","id":"x","method":"a","params":{},"params":{}}"#;
        refused(text, -32600, None, "key `params` is repeated");
    }

    #[test]
    fn params_are_read_as_they_came() {
        let text =
            r#"{"jsonrpc":"2.0","id":1,"method":"a","params": {"é":[1, 2], "b":{"params":{}}} }"#;
        let Ok(Message::Request(request)) = parse(text) else {
            panic!()
        };
        let got: Vec<_> = request.params.iter().map(|(k, v)| (k, v.text())).collect();
        assert_eq!(got, [("é", "[1, 2]"), ("b", r#"{"params":{}}"#)]);
    }

    #[test]
    fn responses_are_told_from_requests() {
        let text = r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"m"}}"#;
        let Ok(Message::Response(None, Outcome::Error(error))) = parse(text) else {
            panic!()
        };
        assert_eq!((error.code(), error.message().as_str()), (-32600, "m"));
    }

    #[test]
    fn a_result_is_read_in_one_pass_and_nothing_else_is() {
        let check = |text: &str, expected: Option<&str>| {
            let read = Message::parse_result(&Bytes::from(text.to_owned()));
            let read = read.map(|(id, result)| format!("{} {result:?}", id.raw()));
            assert_eq!(read.as_deref(), expected, "{text}");
        };
        let fine = r#"{"result":{"a":[1]},"id":7,"jsonrpc":"2.0"}"#;
        check(fine, Some(r#"7 {"a": [1]}"#));
        for text in [
            r#"{"id":7,"jsonrpc":"2.0"}"#,
            r#"{"result":{},"id":7,"jsonrpc":"1.0"}"#,
            r#"{"result":{},"id":null,"jsonrpc":"2.0"}"#,
            r#"{"result":{},"jsonrpc":"2.0"}"#,
            r#"{"result":[],"id":7,"jsonrpc":"2.0"}"#,
            r#"{"result":{"a":1,"a":2},"id":7,"jsonrpc":"2.0"}"#,
            r#"{"result":{},"error":{},"id":7,"jsonrpc":"2.0"}"#,
            r#"{"result":{},"method":"x","id":7,"jsonrpc":"2.0"}"#,
            r#"{"error":{"code":1,"message":""},"id":7,"jsonrpc":"2.0"}"#,
            "[]",
        ] {
            check(text, None);
        }
    }

    #[test]
    fn one_line_keeps_the_value() {
        let line = one_line(Bytes::from_static(b"{\r\n\"a\":\n1}"));
        assert_eq!(line, "{  \"a\": 1}");
    }
}
