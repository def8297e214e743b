//! What a listener is told by upstreams: of what it asked for, by whoever has that now.
//!
//! After a reload another upstream may have it, nobody, or one that came back; and what is denied
//! by now is not told of, as if nobody had it.

use std::collections::HashSet;
use std::pin::Pin;
use std::sync::Arc;

use futures_util::stream::{self, SelectAll, Stream, StreamExt as _};
use tokio::sync::watch::Receiver;
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};
use waypost_wire::object::Object;

use super::filter::{Filter, Wishes};
use super::polled::{self, Polled};
use super::source::{Group, Names, Source};
use crate::call::Call;
use crate::hub::Hub;
use crate::reply::{Event, EventStream};

/// Single resources and tasks on one listener's stream.
pub(super) struct Heard {
    hub: Arc<Hub>,
    /// The listener's request, without params.
    call: Call,
    /// What it was told that it will hear of.
    wanted: Filter,
    sources: Vec<(Names, Running)>,
    /// By handle.
    polled: Vec<(String, Running)>,
    streams: SelectAll<Streamed>,
    /// Bumped when upstreams or endpoints are others.
    arranged: Receiver<u64>,
    /// Bumped when an upstream gets somewhere.
    progress: Receiver<u64>,
    /// Nobody has some of it now.
    lacks: bool,
    last: u64,
}

type Streamed = Pin<Box<dyn Stream<Item = Told> + Send>>;

/// A stream among the others. Dropped, it is told of no more.
struct Running {
    number: u64,
    _stop: DropGuard,
}

enum Told {
    Event(Event),
    /// This one has ended by itself; whether its upstream left, and the next one may have more.
    Over(u64, bool),
}

impl Heard {
    /// Hears of what was acknowledged, and that is `filter` as far as these have it. `arranged` is
    /// what it was when they were looked for.
    pub(super) fn new(
        hub: &Arc<Hub>,
        call: &Call,
        filter: &Filter,
        arranged: Receiver<u64>,
        (sources, polled): (Vec<Source>, Vec<Polled>),
    ) -> Self {
        let mut call = call.clone();
        call.params = Object::new();
        // Nobody waits for what is opened from now on.
        call.awaits_servers = false;
        call.seat = None;
        let mut heard = Self {
            hub: Arc::clone(hub),
            call,
            wanted: filter.honoured(&sources, &polled),
            sources: Vec::new(),
            polled: Vec::new(),
            streams: SelectAll::new(),
            arranged,
            progress: hub.progressing(),
            lacks: false,
            last: 0,
        };
        sources.into_iter().for_each(|one| heard.add_source(one));
        polled.into_iter().for_each(|one| heard.add_polled(one));
        heard
    }

    /// The notifications, under the client's names.
    pub(super) fn into_events(self) -> EventStream {
        Box::pin(stream::unfold(self, |mut heard| async move {
            let event = heard.next().await?;
            Some((Ok(event), heard))
        }))
    }

    async fn next(&mut self) -> Option<Event> {
        loop {
            tokio::select! {
                // Before anything is told that may be denied by now.
                biased;
                changed = self.arranged.changed() => changed.ok()?,
                changed = self.progress.changed(), if self.lacks => changed.ok()?,
                Some(told) = self.streams.next(), if !self.streams.is_empty() => match told {
                    Told::Event(event) => return Some(event),
                    Told::Over(number, false) => {
                        self.give_up(number);
                        continue;
                    }
                    Told::Over(number, true) => {
                        self.sources.retain(|(_, running)| running.number != number);
                        self.polled.retain(|(_, running)| running.number != number);
                    }
                },
            }
            self.arrange().await;
        }
    }

    /// Listens to whoever has it now, and to nobody else. Who goes on with the same is left alone.
    async fn arrange(&mut self) {
        self.progress.borrow_and_update();
        let open = |handle: &str| self.hub.desk.look(&self.hub.catalog(), &self.call, handle);
        let Wishes { groups, tasks } = self.wanted.wishes(&self.hub, &self.call, open);
        let found: usize = groups.iter().map(|group| group.names().uris.len()).sum();
        self.lacks = !self.wanted.has(found, tasks.len());

        let told = self.sources.iter().flat_map(|(names, _)| &names.tasks);
        let told: HashSet<String> = told.cloned().collect();
        let groups = groups.into_iter().map(|group| group.with_tasks(&told));
        let groups: Vec<Group> = groups.filter(|group| !group.is_empty()).collect();
        let names: Vec<Names> = groups.iter().map(Group::names).collect();
        self.sources.retain(|(known, _)| names.contains(known));
        for (group, names) in groups.into_iter().zip(names) {
            if !self.sources.iter().any(|(known, _)| *known == names) {
                self.add_source(Source::anew(group));
            }
        }

        let is_there = |handle: &str| tasks.iter().any(|task| task.handle == handle);
        self.polled.retain(|(handle, _)| is_there(handle));
        let told = self.sources.iter().flat_map(|(names, _)| &names.tasks);
        let told: HashSet<&str> = told
            .chain(self.polled.iter().map(|(handle, _)| handle))
            .map(String::as_str)
            .collect();
        let untold = polled::untold(tasks, &told, self.polled.len());
        let asked: Vec<String> = untold.iter().map(|task| task.handle.clone()).collect();
        let opened = polled::open(&self.hub, &self.call, untold, Instant::now()).await;
        opened.into_iter().for_each(|one| self.add_polled(one));
        // Of the others it is known that there is nothing to hear.
        for handle in asked {
            if !self.polled.iter().any(|(known, _)| *known == handle) {
                self.wanted.remove(&[], &[handle]);
            }
        }
    }

    fn give_up(&mut self, number: u64) {
        for (names, _) in take(&mut self.sources, number) {
            let exposed = names.uris.into_iter().map(|(_, exposed)| exposed);
            let exposed: Vec<String> = exposed.collect();
            self.wanted.remove(&exposed, &names.tasks);
        }
        for (handle, _) in take(&mut self.polled, number) {
            self.wanted.remove(&[], &[handle]);
        }
    }

    fn add_source(&mut self, source: Source) {
        let names = source.names();
        let running = self.run(source, |mut source| async move {
            match source.next().await {
                Some(told) => Ok((Event::Notification(told), source)),
                None => Err(source.has_left()),
            }
        });
        self.sources.push((names, running));
    }

    fn add_polled(&mut self, polled: Polled) {
        let handle = polled.handle().to_owned();
        let running = self.run(polled, |mut polled| async move {
            match polled.next().await {
                Some(told) => Ok((Event::Notification(told), polled)),
                None => Err(polled.has_left()),
            }
        });
        self.polled.push((handle, running));
    }

    fn run<S, F>(&mut self, source: S, next: impl Fn(S) -> F + Send + 'static) -> Running
    where
        S: Send + 'static,
        F: Future<Output = Result<(Event, S), bool>> + Send + 'static,
    {
        self.last += 1;
        let (number, stop) = (self.last, CancellationToken::new());
        let told = stream::unfold((Some(source), next), move |(source, next)| async move {
            Some(match next(source?).await {
                Ok((event, source)) => (Told::Event(event), (Some(source), next)),
                Err(has_left) => (Told::Over(number, has_left), (None, next)),
            })
        });
        let told = told.take_until(stop.clone().cancelled_owned());
        self.streams.push(Box::pin(told));
        Running {
            number,
            _stop: stop.drop_guard(),
        }
    }
}

fn take<N>(all: &mut Vec<(N, Running)>, number: u64) -> Vec<(N, Running)> {
    let (taken, left) = std::mem::take(all)
        .into_iter()
        .partition(|(_, running)| running.number == number);
    *all = left;
    taken
}
