//! Plays the steps and shows them.

use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use waypost_testkit::client::{Client, Post, Reply};

use super::steps::{Ask, STEPS, Show, Step, Who};

/// Between two looks at a task.
const POLL: Duration = Duration::from_millis(100);

/// No task of the tour that is waited for takes longer.
const PATIENCE: Duration = Duration::from_secs(30);

/// Plays all steps against the demo at `url`; `show` gets the text, part by part.
///
/// # Errors
/// When a request gets no answer, or a task does not come to where its step wants it.
pub async fn play(url: &str, mut show: impl FnMut(&str)) -> anyhow::Result<()> {
    let mut tour = Tour {
        knows_tasks: Client::new(url).with_tasks(),
        plain: Client::new(url),
        task: String::new(),
    };
    show(&format!("A tour of {url}\n"));
    for (step, number) in STEPS.iter().zip(1..) {
        let Step { title, says, asks } = step;
        show(&format!("== {number}. {title}\n\n{}\n", wrap(says)));
        for ask in *asks {
            let exchange = tour.exchange(ask).await;
            show(&exchange.with_context(|| format!("step {number}, `{}`", ask.method))?);
        }
    }
    Ok(())
}

struct Tour {
    knows_tasks: Client,
    plain: Client,
    /// The task that was created last.
    task: String,
}

impl Tour {
    /// Asks, and gives the text that shows it.
    async fn exchange(&mut self, ask: &Ask) -> anyhow::Result<String> {
        let params: Value = serde_json::from_str(&ask.params.replace("$TASK", &self.task))?;
        let post = self.client(ask.who).post(ask.method, params);
        let asked = request(&post, ask);
        let reply = match ask.until {
            Some(status) => self.poll(ask, &post, status).await?,
            None => self.client(ask.who).ask(post).await?,
        };
        if reply.result().get("resultType") == Some(&json!("task")) {
            let id = reply.result().get("taskId").and_then(Value::as_str);
            id.context("a task without an id")?
                .clone_into(&mut self.task);
        }
        Ok(format!("{asked}\n{}", response(&reply, ask)))
    }

    async fn poll(&self, ask: &Ask, post: &Post, status: &str) -> anyhow::Result<Reply> {
        let until = Instant::now() + PATIENCE;
        loop {
            let reply = self.client(ask.who).ask(post.clone()).await?;
            let now = reply.result().get("status").and_then(Value::as_str);
            match now {
                Some(now) if now == status => return Ok(reply),
                Some("working") => {}
                Some(other) => bail!("the task is `{other}` and not `{status}`"),
                None => bail!("no task, but {}", reply.answer),
            }
            ensure!(Instant::now() < until, "the task is not `{status}` in time");
            sleep(POLL).await;
        }
    }

    fn client(&self, who: Who) -> &Client {
        match who {
            Who::KnowsTasks => &self.knows_tasks,
            Who::Plain => &self.plain,
        }
    }
}

fn request(post: &Post, ask: &Ask) -> String {
    if ask.show == Show::Everything {
        let lines = post.headers.iter().map(|(name, value)| {
            let value = String::from_utf8_lossy(value.as_bytes());
            format!("   {name}: {value}\n")
        });
        let mut lines: Vec<_> = lines.collect();
        lines.sort();
        let message = indent(&format!("{:#}", post.message));
        return format!("-> POST\n{}{message}", lines.concat());
    }
    let mut params = post.message.get("params").cloned().unwrap_or_default();
    if let Some(params) = params.as_object_mut() {
        params.remove("_meta");
    }
    let who = match ask.who {
        Who::KnowsTasks => "",
        Who::Plain => ", declaring nothing",
    };
    let until = match ask.until {
        Some(status) => format!(", until the status is {status}"),
        None => String::new(),
    };
    format!(
        "-> {}{who}{until}\n{}",
        ask.method,
        indent(&format!("{params:#}"))
    )
}

fn response(reply: &Reply, ask: &Ask) -> String {
    let mut shown = match reply.answer.get("error") {
        Some(error) => json!({ "error": error }),
        None => reply.result().clone(),
    };
    if ask.show == Show::Names {
        let lists = shown
            .as_object_mut()
            .into_iter()
            .flat_map(|o| o.values_mut());
        for list in lists.filter_map(Value::as_array_mut) {
            for item in list {
                *item = item.get("name").cloned().unwrap_or_default();
            }
        }
    }
    let status = reply.status.as_u16();
    format!("<- HTTP {status}\n{}\n", indent(&format!("{shown:#}")))
}

fn indent(text: &str) -> String {
    let lines = text.lines().map(|line| format!("   {line}"));
    lines.collect::<Vec<_>>().join("\n")
}

/// Breaks a text into lines that fit a terminal.
fn wrap(text: &str) -> String {
    const WIDTH: usize = 78;
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.is_empty() => line.push_str(word),
            Some(line) if line.len() + 1 + word.len() <= WIDTH => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines.join("\n")
}
