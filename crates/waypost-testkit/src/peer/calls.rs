//! Requests, from their first message to their last.

use std::io;
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::Peer;
use super::answers::{Answers, Asked};
use super::link::{Link, Opened};
use super::manners::Manners;
use super::outcome::Outcome;
use super::router::Queue;
use crate::client::Post;
use crate::kit::words::META_LOG_LEVEL;

/// How long a request may be silent.
const PATIENCE: Duration = Duration::from_secs(60);

/// A request under way. Dropped, nobody waits for it any more: over modern HTTP that cancels it.
#[derive(Debug)]
pub struct Begun {
    method: String,
    params: Value,
    id: u64,
    opened: Opened,
    outcome: Outcome,
    /// Looked at, not taken yet.
    ahead: Option<Value>,
}

impl Begun {
    /// The request's JSON-RPC id.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// The next notification; `None` when something else came, which stays to be taken by
    /// [`Peer::finish`], or nothing more comes.
    ///
    /// # Errors
    ///
    /// When the server is silent for a minute.
    pub async fn notification(&mut self) -> io::Result<Option<Value>> {
        let Some(message) = self.next().await? else {
            return Ok(None);
        };
        if message.get("method").is_some() && message.get("id").is_none() {
            self.outcome.notifications.push(message.clone());
            return Ok(Some(message));
        }
        self.ahead = Some(message);
        Ok(None)
    }

    /// Waits for a question and leaves it open until [`Peer::finish`]; `None` when the answer
    /// comes first. In the modern era it is the first of those in an `input_required`.
    ///
    /// # Errors
    ///
    /// When the server is silent for a minute.
    pub async fn question(&mut self) -> io::Result<Option<Asked>> {
        while self.notification().await?.is_some() {}
        let Some(message) = &self.ahead else {
            return Ok(None);
        };
        let questions = message.pointer("/result/inputRequests");
        let first = questions.and_then(|all| all.as_object()?.values().next());
        let question = first.unwrap_or(message);
        let method = question.get("method").and_then(Value::as_str);
        Ok(method.map(|method| Asked {
            method: method.to_owned(),
            params: question.get("params").cloned().unwrap_or_default(),
        }))
    }

    /// Leaves the question unanswered that [`Begun::question`] gave.
    pub fn pass(&mut self) {
        let is_question = |message: &Value| message.get("method").is_some();
        self.ahead.take_if(|message| is_question(message));
    }

    pub(super) fn into_queue(self) -> Queue {
        self.opened.queue
    }

    async fn next(&mut self) -> io::Result<Option<Value>> {
        if let Some(ahead) = self.ahead.take() {
            return Ok(Some(ahead));
        }
        let next = tokio::time::timeout(PATIENCE, self.opened.queue.messages.recv()).await;
        next.map_err(|_| io::Error::new(io::ErrorKind::TimedOut, "the server is silent"))
    }
}

impl Peer {
    /// Calls a tool, to its end; it gets a progress token.
    ///
    /// # Errors
    ///
    /// When there is no answer, or the server is silent for a minute.
    pub async fn call(&self, tool: &str, args: Value, answers: &Answers) -> io::Result<Outcome> {
        let begun = self.begin(tool, args).await?;
        self.finish(begun, answers).await
    }

    /// Calls a tool that asks nothing; if it does, it is refused.
    ///
    /// # Errors
    ///
    /// As [`Peer::call`].
    pub async fn tool(&self, tool: &str, args: Value) -> io::Result<Outcome> {
        self.call(tool, args, &Answers::refusing()).await
    }

    /// Begins to call a tool.
    ///
    /// # Errors
    ///
    /// When it cannot be sent.
    pub async fn begin(&self, tool: &str, args: Value) -> io::Result<Begun> {
        let params = json!({ "name": tool, "arguments": args });
        self.send("tools/call", params).await
    }

    /// Calls any method, to its end.
    ///
    /// # Errors
    ///
    /// As [`Peer::call`].
    pub async fn request(
        &self,
        method: &str,
        params: Value,
        answers: &Answers,
    ) -> io::Result<Outcome> {
        let begun = self.send(method, params).await?;
        self.finish(begun, answers).await
    }

    /// The result of any method that asks nothing.
    ///
    /// # Errors
    ///
    /// When there is no answer, or it is an error.
    pub async fn ask(&self, method: &str, params: Value) -> io::Result<Value> {
        let outcome = self.request(method, params, &Answers::refusing()).await?;
        match outcome.answer.get("result") {
            Some(result) => Ok(result.clone()),
            None => {
                let status = outcome
                    .status
                    .map_or_else(String::new, |status| format!("{status}, "));
                let answer = &outcome.answer;
                Err(io::Error::other(format!("`{method}` got {status}{answer}")))
            }
        }
    }

    /// Reads a resource.
    ///
    /// # Errors
    ///
    /// As [`Peer::call`].
    pub async fn read(&self, uri: &str, answers: &Answers) -> io::Result<Outcome> {
        self.request("resources/read", json!({ "uri": uri }), answers)
            .await
    }

    /// Gets a prompt.
    ///
    /// # Errors
    ///
    /// As [`Peer::call`].
    pub async fn prompt(&self, name: &str, args: Value, answers: &Answers) -> io::Result<Outcome> {
        let params = json!({ "name": name, "arguments": args });
        self.request("prompts/get", params, answers).await
    }

    /// Lists `tools`, `prompts`, `resources` or `resourceTemplates`, every page.
    ///
    /// # Errors
    ///
    /// When there is no answer, or it is an error.
    pub async fn list(&self, what: &str) -> io::Result<Vec<Value>> {
        let method = match what {
            "resourceTemplates" => "resources/templates/list".to_owned(),
            other => format!("{other}/list"),
        };
        let mut all = Vec::new();
        let mut params = json!({});
        loop {
            let page = self.ask(&method, params).await?;
            let Some(items) = page.get(what).and_then(Value::as_array) else {
                return Err(io::Error::other(format!("`{method}` got {page}")));
            };
            all.extend(items.iter().cloned());
            match page.get("nextCursor") {
                Some(cursor) => params = json!({ "cursor": cursor }),
                None => return Ok(all),
            }
        }
    }

    /// Cancels what was begun, in its era's way.
    ///
    /// # Errors
    ///
    /// When it cannot be told.
    pub async fn cancel(&self, begun: Begun) -> io::Result<()> {
        if !matches!(self.link, Link::Modern(_)) {
            let params = json!({ "requestId": begun.id, "reason": "no longer needed" });
            self.notify("notifications/cancelled", params).await?;
        }
        drop(begun);
        Ok(())
    }

    pub(super) async fn send(&self, method: &str, params: Value) -> io::Result<Begun> {
        let (id, post) = self.message(method, &params);
        let opened = self.link.open(&self.client, id, post).await?;
        Ok(Begun {
            method: method.to_owned(),
            params,
            id,
            opened,
            outcome: Outcome::default(),
            ahead: None,
        })
    }

    /// The request in the words of its era.
    fn message(&self, method: &str, params: &Value) -> (u64, Post) {
        let mut post = self.client.post(method, params.clone());
        let id = post.message.get("id").and_then(Value::as_u64).unwrap_or(0);
        if self.kind.revision().is_some() {
            post.message = json!({ "jsonrpc": "2.0", "id": id, "method": method });
            if let Some(message) = post.message.as_object_mut() {
                message.insert("params".into(), params.clone());
            }
        }
        post = Manners::dress(&self.headers, post);
        let level = self.level.lock();
        let level = level
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .clone();
        let params = post
            .message
            .get_mut("params")
            .and_then(Value::as_object_mut);
        if let Some(params) = params
            && method == "tools/call"
            && let Some(meta) = params
                .entry("_meta")
                .or_insert_with(|| json!({}))
                .as_object_mut()
        {
            meta.entry("progressToken").or_insert_with(|| id.into());
            if let Some(level) = level {
                meta.insert(META_LOG_LEVEL.into(), level.into());
            }
        }
        (id, post)
    }

    /// Waits for the end of what was begun, answering what it asks.
    ///
    /// # Errors
    ///
    /// As [`Peer::call`].
    pub async fn finish(&self, mut begun: Begun, answers: &Answers) -> io::Result<Outcome> {
        loop {
            self.follow(&mut begun, answers).await?;
            let result = begun.outcome.result();
            if result.get("resultType").and_then(Value::as_str) != Some("input_required") {
                return Ok(begun.outcome);
            }
            let questions = result
                .get("inputRequests")
                .and_then(Value::as_object)
                .cloned();
            let state = result.get("requestState").cloned();
            let Some(given) = reply(&mut begun.outcome, questions.as_ref(), answers) else {
                return Ok(begun.outcome);
            };
            let mut params = begun.params.clone();
            if let Some(members) = params.as_object_mut() {
                members.insert("inputResponses".into(), given.into());
                match state {
                    Some(state) => members.insert("requestState".into(), state),
                    None => members.remove("requestState"),
                };
            }
            let outcome = std::mem::take(&mut begun.outcome);
            begun = self.send(&begun.method.clone(), params).await?;
            begun.outcome = Outcome {
                answer: Value::Null,
                ..outcome
            };
        }
    }

    /// Takes everything up to the answer.
    async fn follow(&self, begun: &mut Begun, answers: &Answers) -> io::Result<()> {
        while begun.outcome.answer.is_null() {
            let Some(message) = begun.next().await? else {
                break;
            };
            let Some(method) = message.get("method").and_then(Value::as_str) else {
                begun.outcome.answer = message;
                break;
            };
            let Some(id) = message.get("id") else {
                begun.outcome.notifications.push(message);
                continue;
            };
            let params = message.get("params").cloned().unwrap_or_default();
            let answer = match answers.of(method, &params) {
                Ok(result) => json!({ "jsonrpc": "2.0", "id": id, "result": result }),
                Err(error) => json!({ "jsonrpc": "2.0", "id": id, "error": error }),
            };
            let method = method.to_owned();
            begun.outcome.asked.push(Asked { method, params });
            self.link.send(answer).await?;
        }
        if let Some(head) = begun.opened.head.take()
            && let Ok(head) = head.await
        {
            begun.outcome.status = Some(head?);
        }
        Ok(())
    }
}

/// Answers the questions of an `input_required`; `None` when one is refused.
pub(super) fn reply(
    outcome: &mut Outcome,
    questions: Option<&Map<String, Value>>,
    answers: &Answers,
) -> Option<Map<String, Value>> {
    let mut given = Map::new();
    for (key, question) in questions.into_iter().flatten() {
        let method = question
            .get("method")
            .and_then(Value::as_str)
            .unwrap_or_default();
        let params = question.get("params").cloned().unwrap_or_default();
        let answer = answers.of(method, &params);
        let method = method.to_owned();
        outcome.asked.push(Asked { method, params });
        given.insert(key.clone(), answer.ok()?);
    }
    Some(given)
}
