//! Multi round-trip requests: what is asked, and how the answers are taken.
//!
//! Every round stands for itself: what later rounds need travels sealed in `requestState`.

use serde_json::{Map, Value, json};

use crate::kit::fail::Fail;
use crate::kit::request::Request;
use crate::kit::schema::{accepted, form, text};
use crate::kit::seal::Sealer;

const PREFIX: &str = "test_input_required_result_";

/// A question and the key its answer comes back under.
pub(crate) type Question = (&'static str, Value);

/// Answers one of the asking tools; `None` when the name is none of them.
pub(crate) fn call(name: &str, request: &Request, sealer: &Sealer) -> Option<Result<Value, Fail>> {
    let round = Round {
        request,
        sealer,
        purpose: format!("tools/call {name}"),
    };
    Some(match name.strip_prefix(PREFIX)? {
        "elicitation" => round.elicitation(),
        "sampling" => round.sampling(),
        "list_roots" => round.roots(),
        "request_state" | "tampered_state" => round.state(),
        "multiple_inputs" => round.multiple(),
        "multi_round" => round.multi_round(),
        "capabilities" => round.capabilities(),
        _ => return None,
    })
}

/// Asks one text of the user, for a prompt or a resource: the answer, or the result to send.
pub(crate) fn ask_text<'a>(
    request: &'a Request,
    key: &'static str,
    message: &str,
    member: &str,
) -> Result<Result<&'a str, Value>, Fail> {
    let answer = request.input_responses()?.and_then(|all| all.get(key));
    match answer {
        Some(answer) => Ok(Ok(string(answer, member).unwrap_or("nothing"))),
        None => ask(request, vec![(key, form(message, member, "string"))], None).map(Err),
    }
}

struct Round<'a> {
    request: &'a Request,
    sealer: &'a Sealer,
    purpose: String,
}

impl Round<'_> {
    fn answer(&self, key: &str) -> Result<Option<&Value>, Fail> {
        Ok(self.request.input_responses()?.and_then(|all| all.get(key)))
    }

    fn ask(&self, questions: Vec<Question>, state: Option<&Value>) -> Result<Value, Fail> {
        let state = state.map(|state| self.sealer.seal(&self.purpose, state));
        ask(self.request, questions, state)
    }

    /// The state of the round before; `None` on the first.
    fn opened(&self) -> Result<Option<Value>, Fail> {
        let sealed = self.request.request_state();
        sealed
            .map(|sealed| self.sealer.open(&self.purpose, sealed))
            .transpose()
    }

    fn elicitation(&self) -> Result<Value, Fail> {
        match self.answer("user_name")? {
            None => self.ask(vec![user_name()], None),
            Some(answer) => Ok(text(match string(answer, "name") {
                Some(name) => format!("Hello, {name}!"),
                None => "Hello, whoever you are!".to_owned(),
            })),
        }
    }

    fn sampling(&self) -> Result<Value, Fail> {
        match self.answer("capital_question")? {
            None => self.ask(
                vec![(
                    "capital_question",
                    sampling("What is the capital of France?", 100),
                )],
                None,
            ),
            Some(answer) => Ok(text(format!("The model said: {}", sampled(answer)))),
        }
    }

    fn roots(&self) -> Result<Value, Fail> {
        match self.answer("client_roots")? {
            None => self.ask(vec![client_roots()], None),
            Some(answer) => Ok(text(format!("Roots: {}", root_uris(answer)))),
        }
    }

    fn state(&self) -> Result<Value, Fail> {
        let question = ("confirm", form("Please confirm", "ok", "boolean"));
        match (self.opened()?, self.answer("confirm")?) {
            (Some(_), Some(answer)) => Ok(text(match accepted(answer, "ok") {
                Some(Value::Bool(true)) => "state-ok: confirmed",
                _ => "state-ok: not confirmed",
            })),
            _ => self.ask(vec![question], Some(&json!("asked"))),
        }
    }

    fn multiple(&self) -> Result<Value, Fail> {
        let questions = vec![
            user_name(),
            ("greeting", sampling("Write a greeting.", 50)),
            client_roots(),
        ];
        let opened = self.opened()?;
        let given = self.request.input_responses()?;
        let all =
            |given: &Map<String, Value>| questions.iter().all(|(key, _)| given.contains_key(*key));
        let Some(given) = given.filter(|given| opened.is_some() && all(given)) else {
            return self.ask(questions, Some(&json!("asked")));
        };
        let get = |key: &str| given.get(key).unwrap_or(&Value::Null);
        let name = string(get("user_name"), "name").unwrap_or("nobody");
        let (greeting, roots) = (sampled(get("greeting")), root_uris(get("client_roots")));
        Ok(text(format!("{greeting} {name}; roots: {roots}")))
    }

    fn multi_round(&self) -> Result<Value, Fail> {
        let opened = self.opened()?;
        let name = opened
            .as_ref()
            .and_then(|state| state.get("name"))
            .and_then(Value::as_str);
        if let (Some(name), Some(answer)) = (name, self.answer("step2")?) {
            let color = string(answer, "color").unwrap_or("no color");
            return Ok(text(format!("{name} likes {color}.")));
        }
        match (opened.as_ref(), self.answer("step1")?) {
            (Some(_), Some(answer)) => {
                let name = string(answer, "name").unwrap_or("Somebody");
                let question = form("Step 2: What is your favorite color?", "color", "string");
                self.ask(vec![("step2", question)], Some(&json!({ "name": name })))
            }
            _ => {
                let question = form("Step 1: What is your name?", "name", "string");
                self.ask(vec![("step1", question)], Some(&json!({})))
            }
        }
    }

    fn capabilities(&self) -> Result<Value, Fail> {
        if self
            .request
            .input_responses()?
            .is_some_and(|given| !given.is_empty())
        {
            return Ok(text("asked only what could be answered"));
        }
        let mut questions = Vec::new();
        if self.request.has_forms() {
            questions.push(user_name());
        }
        if self.request.declares("sampling") {
            questions.push(("greeting", sampling("Write a greeting.", 50)));
        }
        if self.request.declares("roots") {
            questions.push(client_roots());
        }
        if questions.is_empty() {
            return Ok(text("this client cannot be asked anything"));
        }
        self.ask(questions, None)
    }
}

/// An `input_required` result, unless the client did not declare what it takes to answer.
pub(crate) fn ask(
    request: &Request,
    questions: Vec<Question>,
    state: Option<String>,
) -> Result<Value, Fail> {
    let mut missing = Map::new();
    for (_, question) in &questions {
        match question.get("method").and_then(Value::as_str) {
            Some("elicitation/create") if !request.has_forms() => {
                missing.insert("elicitation".into(), json!({ "form": {} }));
            }
            Some("sampling/createMessage") if !request.declares("sampling") => {
                missing.insert("sampling".into(), json!({}));
            }
            Some("roots/list") if !request.declares("roots") => {
                missing.insert("roots".into(), json!({}));
            }
            _ => {}
        }
    }
    if !missing.is_empty() {
        return Err(Fail::missing_capability(&Value::Object(missing)));
    }
    let questions = questions
        .into_iter()
        .map(|(key, question)| (key.to_owned(), question));
    let mut result = json!({
        "resultType": "input_required",
        "inputRequests": Value::Object(questions.collect()),
    });
    if let (Some(state), Some(members)) = (state, result.as_object_mut()) {
        members.insert("requestState".into(), state.into());
    }
    Ok(result)
}

/// An `input_required` result of one question, whatever the client declared.
pub(crate) fn question(key: &str, question: &Value) -> Value {
    json!({ "resultType": "input_required", "inputRequests": { key: question } })
}

fn user_name() -> Question {
    ("user_name", form("What is your name?", "name", "string"))
}

fn client_roots() -> Question {
    (
        "client_roots",
        json!({ "method": "roots/list", "params": {} }),
    )
}

pub(crate) fn sampling(question: &str, max_tokens: u32) -> Value {
    json!({
        "method": "sampling/createMessage",
        "params": {
            "messages": [{ "role": "user", "content": { "type": "text", "text": question } }],
            "maxTokens": max_tokens,
        },
    })
}

fn string<'a>(answer: &'a Value, member: &str) -> Option<&'a str> {
    accepted(answer, member).and_then(Value::as_str)
}

pub(crate) fn sampled(answer: &Value) -> &str {
    let text = answer
        .get("content")
        .and_then(|content| content.get("text"));
    text.and_then(Value::as_str).unwrap_or("nothing")
}

pub(crate) fn root_uris(answer: &Value) -> String {
    let roots = answer.get("roots").and_then(Value::as_array);
    let uris = roots
        .into_iter()
        .flatten()
        .filter_map(|root| root.get("uri")?.as_str());
    uris.collect::<Vec<_>>().join(", ")
}
