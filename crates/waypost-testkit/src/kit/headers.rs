//! Headers that mirror the body, compared with it (Streamable HTTP, request headers).

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::HeaderMap;
use serde_json::{Map, Value};

use super::fail::Fail;
use super::request::Request;
use super::words::{HEADER_METHOD, HEADER_NAME, HEADER_PARAM, HEADER_VERSION};

/// Compares version, method and name with the body.
pub(crate) fn check(headers: &HeaderMap, request: &Request) -> Result<(), Fail> {
    equal(
        headers,
        HEADER_VERSION,
        request.version().unwrap_or_default(),
    )?;
    equal(headers, HEADER_METHOD, &request.method)?;
    let key = match request.method.as_str() {
        "tools/call" | "prompts/get" => "name",
        "resources/read" => "uri",
        "tasks/get" | "tasks/update" | "tasks/cancel" => "taskId",
        _ => return Ok(()),
    };
    match request.params.get(key).and_then(Value::as_str) {
        Some(name) => equal(headers, HEADER_NAME, name),
        // The method itself says what is wrong with its parameters.
        None => Ok(()),
    }
}

/// Compares `Mcp-Param-*` with the arguments its tool's schema annotates.
pub(crate) fn check_params(
    headers: &HeaderMap,
    schema: &Value,
    arguments: &Map<String, Value>,
) -> Result<(), Fail> {
    let Some(properties) = schema.get("properties").and_then(Value::as_object) else {
        return Ok(());
    };
    for (key, property) in properties {
        let argument = arguments.get(key).filter(|value| !value.is_null());
        if let Some(name) = property.get("x-mcp-header").and_then(Value::as_str) {
            check_param(headers, name, argument)?;
        } else if let Some(inner) = argument.and_then(Value::as_object) {
            check_params(headers, property, inner)?;
        }
    }
    Ok(())
}

fn check_param(headers: &HeaderMap, name: &str, argument: Option<&Value>) -> Result<(), Fail> {
    let header = format!("{HEADER_PARAM}{}", name.to_ascii_lowercase());
    let Some(argument) = argument else {
        return match headers.get(&header) {
            None => Ok(()),
            Some(_) => Err(Fail::header_mismatch(format!(
                "`{header}` without its argument"
            ))),
        };
    };
    let sent = decoded(headers, &header)?;
    let same = match argument {
        Value::String(text) => sent == *text,
        Value::Bool(flag) => sent == flag.to_string(),
        Value::Number(number) => {
            sent == number.to_string() || sent.parse::<f64>().ok() == number.as_f64()
        }
        // Not something a header can carry: the tool refuses the argument.
        Value::Null | Value::Array(_) | Value::Object(_) => true,
    };
    if same {
        Ok(())
    } else {
        Err(Fail::header_mismatch(format!(
            "`{header}` differs from the body"
        )))
    }
}

fn equal(headers: &HeaderMap, header: &str, body: &str) -> Result<(), Fail> {
    if decoded(headers, header)? == body {
        return Ok(());
    }
    Err(Fail::header_mismatch(format!(
        "`{header}` differs from the body, which says `{body}`"
    )))
}

fn decoded(headers: &HeaderMap, header: &str) -> Result<String, Fail> {
    let mut values = headers.get_all(header).iter();
    let (Some(value), None) = (values.next(), values.next()) else {
        return Err(Fail::header_mismatch(format!(
            "`{header}` must be sent exactly once"
        )));
    };
    let text = value
        .to_str()
        .ok()
        .map(|text| text.trim_matches([' ', '\t']));
    text.and_then(decode)
        .ok_or_else(|| Fail::header_mismatch(format!("`{header}` cannot be decoded")))
}

/// Undoes the encoding of a header value; `None` when it is broken.
pub(crate) fn decode(value: &str) -> Option<String> {
    let inner = value
        .strip_prefix("=?base64?")
        .and_then(|rest| rest.strip_suffix("?="));
    match inner {
        None => Some(value.to_owned()),
        Some(inner) => String::from_utf8(STANDARD.decode(inner).ok()?).ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[track_caller]
    fn check_decode(value: &str, expected: Option<&str>) {
        assert_eq!(decode(value).as_deref(), expected, "{value}");
    }

    #[test]
    fn values_are_decoded_only_inside_the_whole_sentinel() {
        check_decode("plain", Some("plain"));
        check_decode("=?base64?SGVsbG8=?=", Some("Hello"));
        check_decode("=?base64?SGVsbG8?=", None);
        check_decode("=?base64?SGVs!!!bG8=?=", None);
        check_decode("=?base64?SGVsbG8=", Some("=?base64?SGVsbG8="));
        check_decode("SGVsbG8=", Some("SGVsbG8="));
        check_decode("=?base64?/w==?=", None);
    }

    #[track_caller]
    fn check_header(header: Option<&str>, argument: &Value, ok: bool) {
        let schema = json!({ "properties": { "a": { "x-mcp-header": "Region" } } });
        let mut headers = HeaderMap::new();
        if let Some(header) = header {
            headers.insert("mcp-param-region", header.parse().expect("a header value"));
        }
        let arguments = json!({ "a": argument });
        let arguments = arguments.as_object().expect("an object");
        let result = check_params(&headers, &schema, arguments);
        assert_eq!(result.is_ok(), ok, "{header:?} {argument}");
        assert!(result.err().is_none_or(|fail| fail.code == -32020));
    }

    #[test]
    fn annotated_arguments_need_their_header() {
        check_header(Some("eu"), &json!("eu"), true);
        check_header(Some("us"), &json!("eu"), false);
        check_header(None, &json!("eu"), false);
        check_header(None, &Value::Null, true);
        check_header(Some("eu"), &Value::Null, false);
        check_header(Some("7"), &json!(7), true);
        check_header(Some("7.0"), &json!(7), true);
        check_header(Some("8"), &json!(7), false);
        check_header(Some("true"), &json!(true), true);
        check_header(Some("True"), &json!(true), false);
    }
}
