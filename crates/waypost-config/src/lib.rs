//! Turns YAML, environment and flags into a checked configuration, or the full list of problems.
//!
//! The way of a configuration: every source becomes a tree that knows positions (`yaml`,
//! `sources`, `include`), `${...}` is put in (`interpolate`), figment lays the trees over each
//! other (`layers`), the result is fitted to the shape of the raw structs (`shape`, `check`,
//! `raw`), and what fits is compiled into a [`Config`] (`compile`). A stage that finds something
//! wrong leaves it out and goes on, so one run names everything.
//!
//! ```
//! let yaml = "upstreams: { files: { command: my-server, timeot: 5s } }";
//! let problems = waypost_config::parse_str(yaml).unwrap_err();
//! assert_eq!(problems[0].at, "upstreams.files.timeot");
//! assert_eq!(problems[0].hint.as_deref(), Some("did you mean `timeout`?"));
//! ```

mod check;
mod compile;
pub mod config;
#[cfg(test)]
mod examples;
mod foreign;
mod include;
mod inputs;
mod interpolate;
mod layers;
mod load;
mod node;
mod path;
mod problem;
mod raw;
#[cfg(test)]
mod reference;
mod schema;
mod secret;
mod shape;
mod sources;
mod suggest;
mod units;
mod yaml;

pub use config::{
    Auth, Config, Declared, Discovery, Endpoint, Eras, ExposedExtension, Family, Filter, Front,
    Isolation, Key, KeyHash, Limits, Log, LogFormat, Naming, OnCollision, Pin, PromptRules, Reach,
    Reload, State, TaskPolicy, TaskTimes, ToolRules, Upstream, UpstreamEra,
};
pub use inputs::Inputs;
pub use load::{Loaded, load, parse_str, read};
pub use problem::{Problem, Severity};
pub use schema::json_schema;
pub use secret::{Secret, Url};
pub use sources::{Sources, environment};
pub use suggest::nearest;
