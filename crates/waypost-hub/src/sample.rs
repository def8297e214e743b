//! A hub for tests of what only the crate itself sees.

use std::sync::Arc;

use waypost_config::config::Config;

use crate::call::Call;
use crate::error::{CallError, Kind, Origin};
use crate::hub::{Hub, Parts};
use crate::keys::Keys;
use crate::lifecycle::Tasks;
use crate::member::Member;
use crate::registry::Learned;
use crate::store::{Store, StoreError};
use crate::upstream::{BoxFuture, CallFuture, Facts, Upstream};

/// Says nothing of itself and takes no calls.
#[derive(Debug)]
struct Nobody;

/// Keeps nothing.
#[derive(Debug)]
struct Nothing;

impl Upstream for Nobody {
    fn discover<'a>(&'a self, _: Option<&'a str>) -> BoxFuture<'a, Result<Facts, CallError>> {
        Box::pin(async { Ok(Facts::default()) })
    }

    fn call(&self, _: Call) -> CallFuture<'_> {
        let error = CallError::new(Kind::Unavailable, Origin::Gateway);
        Box::pin(async { Err(error) })
    }
}

impl Store for Nothing {
    fn load(&self) -> BoxFuture<'_, Result<Vec<Learned>, StoreError>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    fn save(&self, _: Learned) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(async { Ok(()) })
    }

    fn forget(&self, _: &str) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(async { Ok(()) })
    }
}

pub(crate) fn config(yaml: &str) -> Config {
    waypost_config::parse_str(yaml).unwrap().config
}

/// The members of a file.
pub(crate) fn members(config: &Config) -> Vec<Arc<Member>> {
    let upstreams = config.upstreams.iter();
    let member = |settings: &_| Arc::new(Member::new(Clone::clone(settings), Arc::new(Nobody)));
    upstreams.map(member).collect()
}

/// A hub that has not started.
pub(crate) fn hub(yaml: &str) -> Arc<Hub> {
    let config = config(yaml);
    Hub::new(Parts {
        members: members(&config),
        config: Arc::new(config),
        store: Arc::new(Nothing),
        keys: Keys::new(vec![vec![7; 32]]).unwrap(),
        background: Tasks::default(),
    })
}
