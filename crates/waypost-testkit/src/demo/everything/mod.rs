//! *demo-everything*: the rest of the protocol, named as the official server scenarios name it.

mod asks;
mod counts;
mod mrtr;
mod prompts;
mod resources;
mod samples;
mod slow;
mod tools;
mod url;

use std::borrow::Cow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde_json::{Value, json};

use self::counts::Counts;
use self::resources::Now;
use self::slow::Slow;
use crate::kit::dispatch::{cacheable, only_page};
use crate::kit::events::{Event, Events};
use crate::kit::fail::Fail;
use crate::kit::legacy::{ASK_OUTSIDE, CLOSE_STREAM};
use crate::kit::out::Out;
use crate::kit::request::Request;
use crate::kit::schema;
use crate::kit::seal::Sealer;
use crate::kit::server::{Answer, Server, ToolCall};

/// What completions are made of.
const WORDS: &[&str] = &["paris", "park", "party", "test", "testing", "text"];
const LEVELS: &[&str] = &[
    "debug",
    "info",
    "notice",
    "warning",
    "error",
    "critical",
    "alert",
    "emergency",
];
const BEAT: Duration = Duration::from_millis(50);

/// The server *demo-everything*.
#[derive(Debug, Default)]
pub struct EverythingServer {
    events: Events,
    sealer: Sealer,
    tool_changes: AtomicU64,
    prompt_changes: AtomicU64,
    resource_changes: AtomicU64,
    updates: AtomicU64,
    slow: Slow,
    counts: Counts,
}

impl EverythingServer {
    /// A server that announces its changes on `events`.
    pub fn new(events: Events) -> Self {
        Self {
            events,
            ..Self::default()
        }
    }

    fn now(&self) -> Now {
        Now {
            dynamic: is_odd(&self.resource_changes),
            updates: self.updates.load(Ordering::SeqCst),
        }
    }

    fn change(&self, counter: &AtomicU64, event: Event, what: &str) -> Value {
        counter.fetch_add(1, Ordering::SeqCst);
        self.events.publish(event);
        schema::text(format!("{what} changed"))
    }

    async fn tool(&self, call: ToolCall<'_>, out: &Out) -> Result<Value, Fail> {
        let request = call.request;
        if let Some(answer) = mrtr::call(call.name, request, &self.sealer) {
            return answer;
        }
        if let Some(answer) = asks::call(&call) {
            return answer;
        }
        if let Some(content) = content(call.name) {
            return Ok(json!({ "content": content, "isError": false }));
        }
        Ok(match call.name {
            "test_error_handling" => {
                schema::error("This tool intentionally returns an error for testing")
            }
            "test_tool_with_logging" => log_steps(request, out).await,
            "test_logging_tool" => {
                for level in LEVELS {
                    out.log(request, level, &format!("a message at {level}"))
                        .await;
                }
                schema::text("logged at every level")
            }
            "test_tool_with_progress" => progress(request, out).await,
            "test_slow" => self.slow.run(&call, out).await,
            "test_count" => schema::text(self.counts.next("test_count", request).to_string()),
            "test_ask_outside" => {
                let question = schema::form("Outside of any call", "answer", "string");
                let params = question.get("params").cloned().unwrap_or_default();
                // Only a session has a place for it.
                if request.session().is_some_and(|session| !session.is_empty()) {
                    out.notify(ASK_OUTSIDE, params).await;
                }
                schema::text("will ask when this call is over")
            }
            "test_elicitation_url" | "test_url_required" => {
                return url::call(&call, &self.counts, out).await;
            }
            "test_cancelled" => self.slow.report(),
            "test_reconnection" => reconnection(request, out).await,
            "test_missing_capability" => {
                // What a session declares need not be what the caller of this one call can do.
                if request.session().is_some() && request.input_responses()?.is_none() {
                    let question = mrtr::sampling("Is anybody there?", 10);
                    return mrtr::ask(request, vec![("anybody", question)], None);
                }
                if !request.declares("sampling") {
                    return Err(Fail::missing_capability(&json!({ "sampling": {} })));
                }
                schema::text("this client has sampling")
            }
            "test_streaming_elicitation" => {
                out.progress(request, 1.0, 2.0, "about to ask").await;
                return match mrtr::ask_text(request, "user_name", "What is your name?", "name")? {
                    Ok(name) => Ok(schema::text(format!("Hello, {name}!"))),
                    Err(question) => Ok(question),
                };
            }
            "test_trigger_tool_change" => self.change(&self.tool_changes, Event::Tools, "tools"),
            "test_trigger_prompt_change" => {
                self.change(&self.prompt_changes, Event::Prompts, "prompts")
            }
            "test_trigger_resource_change" => {
                self.change(&self.resource_changes, Event::Resources, "resources")
            }
            "test_trigger_resource_update" => {
                let event = Event::Updated(resources::WATCHED.to_owned());
                self.change(&self.updates, event, resources::WATCHED)
            }
            // `echo`, `test_mirrored_headers`, the schema tool and the dynamic one.
            _ => echo(&call),
        })
    }

    fn other(&self, request: &Request) -> Result<Value, Fail> {
        match request.method.as_str() {
            "prompts/list" => {
                only_page(request)?;
                let prompts = prompts::prompts(is_odd(&self.prompt_changes));
                Ok(cacheable(json!({ "prompts": prompts })))
            }
            "prompts/get" => prompts::get(request, is_odd(&self.prompt_changes)),
            "resources/list" => {
                only_page(request)?;
                Ok(cacheable(
                    json!({ "resources": resources::list(self.now()) }),
                ))
            }
            "resources/templates/list" => {
                only_page(request)?;
                Ok(cacheable(
                    json!({ "resourceTemplates": resources::templates() }),
                ))
            }
            "resources/read" => resources::read(request, self.now()),
            "completion/complete" => complete(request),
            other => Err(Fail::method_not_found(other)),
        }
    }
}

impl Server for EverythingServer {
    fn name(&self) -> &'static str {
        "demo-everything"
    }

    fn instructions(&self) -> &'static str {
        "One of everything: tools, prompts, resources, questions, logs and changes."
    }

    fn capabilities(&self) -> Value {
        json!({
            "tools": { "listChanged": true },
            "prompts": { "listChanged": true },
            "resources": { "listChanged": true, "subscribe": true },
            "completions": {},
            "logging": {},
        })
    }

    fn tools(&self) -> Cow<'_, [Value]> {
        let [fixed, with_dynamic] = &*tools::TOOLS;
        Cow::Borrowed(if is_odd(&self.tool_changes) {
            with_dynamic
        } else {
            fixed
        })
    }

    fn events(&self) -> &Events {
        &self.events
    }

    fn call_tool<'a>(&'a self, call: ToolCall<'a>, out: &'a Out) -> Answer<'a> {
        Box::pin(self.tool(call, out))
    }

    fn call<'a>(&'a self, request: &'a Request, _: &'a Out) -> Answer<'a> {
        Box::pin(std::future::ready(self.other(request)))
    }
}

fn is_odd(counter: &AtomicU64) -> bool {
    counter.load(Ordering::SeqCst) % 2 == 1
}

/// The content of the tools that only show a kind of content.
fn content(name: &str) -> Option<Value> {
    let text = |text: &str| json!({ "type": "text", "text": text });
    let embedded = |uri: &str, kind: &str, text: &str| json!({ "type": "resource", "resource": { "uri": uri, "mimeType": kind, "text": text } });
    Some(match name {
        "test_simple_text" => json!([text("This is a simple text response for testing.")]),
        "test_image_content" => json!([samples::image()]),
        "test_audio_content" => {
            json!([{ "type": "audio", "data": samples::WAV, "mimeType": "audio/wav" }])
        }
        "test_embedded_resource" => json!([embedded(
            "test://embedded-resource",
            "text/plain",
            "This is an embedded resource content.",
        )]),
        "test_multiple_content_types" => json!([
            text("Multiple content types test:"),
            samples::image(),
            embedded(
                "test://mixed-content-resource",
                "application/json",
                r#"{"test":"data","value":123}"#,
            ),
        ]),
        "test_resource_link" => json!([
            { "type": "resource_link", "uri": "test://static-text", "name": "static-text" },
            { "type": "resource_link", "uri": "test://template/7/data", "name": "template" },
        ]),
        _ => return None,
    })
}

async fn log_steps(request: &Request, out: &Out) -> Value {
    for step in ["started", "processing data", "finished"] {
        out.log(request, "info", &format!("test_tool_with_logging {step}"))
            .await;
        tokio::time::sleep(BEAT).await;
    }
    schema::text("logged three times")
}

/// Where a stream can be resumed, it closes while the call goes on.
async fn reconnection(request: &Request, out: &Out) -> Value {
    if request.is_resumable() {
        out.notify(CLOSE_STREAM, json!({})).await;
    }
    tokio::time::sleep(BEAT).await;
    schema::text("the stream was closed and resumed")
}

async fn progress(request: &Request, out: &Out) -> Value {
    for done in [0.0, 50.0, 100.0] {
        if done > 0.0 {
            tokio::time::sleep(BEAT).await;
        }
        out.progress(request, done, 100.0, "working").await;
    }
    schema::text("reported progress three times")
}

fn echo(call: &ToolCall<'_>) -> Value {
    let arguments = Value::Object(call.arguments.clone());
    json!({
        "content": [{ "type": "text", "text": arguments.to_string() }],
        "structuredContent": arguments,
        "isError": false,
    })
}

fn complete(request: &Request) -> Result<Value, Fail> {
    let member = |of: &str, key: &str| {
        let value = request
            .params
            .get(of)
            .and_then(|of| of.get(key))
            .and_then(Value::as_str);
        value.ok_or_else(|| Fail::invalid_params(format!("`{of}` needs `{key}`")))
    };
    let known = match member("ref", "type")? {
        "ref/prompt" => {
            let name = member("ref", "name")?;
            prompts::prompts(true)
                .iter()
                .any(|prompt| prompt.get("name") == Some(&name.into()))
        }
        "ref/resource" => member("ref", "uri")? == "test://template/{id}/data",
        _ => false,
    };
    if !known {
        return Err(Fail::invalid_params("`ref` names nothing of this server"));
    }
    let (_, start) = (member("argument", "name")?, member("argument", "value")?);
    let values: Vec<_> = WORDS
        .iter()
        .filter(|word| word.starts_with(start))
        .collect();
    let total = values.len();
    Ok(json!({ "completion": { "values": values, "total": total, "hasMore": false } }))
}
