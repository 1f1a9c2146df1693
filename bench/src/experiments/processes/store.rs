//! The resource of an experiment: the service of the `resource` crate, on a thread of this process
//! and a port of its own. It knows nothing of locks; fences are all it sees.

use crate::http;
use resource::limits::{CONNECTIONS_DEFAULT, VALUE_BYTES_DEFAULT};
use resource::{Enforcement, Policy, Store, StoreSettings};
use serde_json::Value;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// How long it may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// A running service. Dropping it ends it.
pub(crate) struct Resource {
    pub(crate) address: SocketAddr,
    stop: CancellationToken,
    thread: Option<JoinHandle<()>>,
}

/// What the service has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) accepted: u64,
    pub(crate) stale_rejections: u64,
    pub(crate) violations: u64,
}

/// A value, and the highest fence it was written under.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct State {
    pub(crate) value: String,
    pub(crate) max_fence: u64,
}

impl Resource {
    /// Starts one that refuses fences which run backwards, or only counts them.
    pub(crate) fn start(is_fenced: bool) -> Result<Resource, String> {
        let settings = StoreSettings {
            enforcement: match is_fenced {
                true => Enforcement::On(Policy::FirstUse),
                false => Enforcement::Off,
            },
            ..StoreSettings::default()
        };
        let store = Store::open(&settings).map_err(|error| error.to_string())?;
        let routes = resource::http::routes(store, VALUE_BYTES_DEFAULT);
        let stop = CancellationToken::new();
        let (report, reported) = mpsc::channel();
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build();
            let runtime = match runtime {
                Ok(runtime) => runtime,
                Err(error) => return drop(report.send(Err(error))),
            };
            runtime.block_on(async {
                let bound = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await;
                match bound.and_then(|listener| Ok((listener.local_addr()?, listener))) {
                    Err(error) => drop(report.send(Err(error))),
                    Ok((address, listener)) => {
                        drop(report.send(Ok(address)));
                        resource::serve(listener, routes, CONNECTIONS_DEFAULT, stopped).await;
                    }
                }
            });
        });
        let address = reported
            .recv()
            .map_err(|_| "the resource ended early".to_owned())?
            .map_err(|error| format!("the resource cannot listen: {error}"))?;
        Ok(Resource {
            address,
            stop,
            thread: Some(thread),
        })
    }

    /// What it has counted so far.
    pub(crate) fn counts(&self) -> Result<Counts, String> {
        let page = metrics(self.address)?;
        let count = |name: &str| number(&page, name).unwrap_or(0);
        Ok(Counts {
            accepted: count("resource_writes_accepted_total"),
            stale_rejections: count("resource_stale_token_rejections_total"),
            violations: count("resource_fence_violations_total"),
        })
    }
}

impl Drop for Resource {
    fn drop(&mut self) {
        self.stop.cancel();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Whether the resource at `address` enforces fences.
pub(crate) fn is_fenced(address: SocketAddr) -> Result<bool, String> {
    Ok(number(&metrics(address)?, "resource_fence_enforced") == Some(1))
}

/// Reads a key; one that was never written is empty.
pub(crate) fn read(address: SocketAddr, key: &str) -> Result<State, String> {
    let answer = http::ask(address, "GET", &format!("/r/{key}"), &[], "", PATIENCE)
        .map_err(|error| format!("the resource: {error}"))?;
    let state: Value = serde_json::from_str(&answer.body).unwrap_or_default();
    Ok(State {
        value: state["value"].as_str().unwrap_or_default().to_owned(),
        max_fence: state["max_fence"].as_u64().unwrap_or(0),
    })
}

/// Writes a key under a fence.
pub(crate) fn write(
    address: SocketAddr,
    key: &str,
    fence: u64,
    value: &str,
) -> io::Result<http::Answer> {
    let headers = [("X-Fence-Token", fence.to_string())];
    http::ask(
        address,
        "PUT",
        &format!("/r/{key}"),
        &headers,
        value,
        PATIENCE,
    )
}

fn metrics(address: SocketAddr) -> Result<String, String> {
    let answer = http::ask(address, "GET", "/metrics", &[], "", PATIENCE);
    Ok(answer
        .map_err(|error| format!("the resource: {error}"))?
        .body)
}

/// A metric without labels.
fn number(page: &str, name: &str) -> Option<u64> {
    let value = page
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
    value.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_are_found_by_their_whole_names() {
        let page = "# TYPE a counter\na_total 3\na_total_b 4\n";
        assert_eq!(number(page, "a_total"), Some(3));
        assert_eq!(number(page, "a"), None);
    }

    #[test]
    fn a_resource_says_whether_it_looks_at_fences_and_counts_what_it_sees() {
        for is_on in [true, false] {
            let resource = Resource::start(is_on).unwrap();
            assert_eq!(is_fenced(resource.address), Ok(is_on));
            assert_eq!(read(resource.address, "k"), Ok(State::default()));
            let statuses = [2, 1].map(|fence| {
                let answer = write(resource.address, "k", fence, &fence.to_string());
                answer.unwrap().status
            });
            assert_eq!(statuses, [200, if is_on { 409 } else { 200 }]);
            let counts = resource.counts().unwrap();
            assert_eq!(counts.stale_rejections, u64::from(is_on));
            assert_eq!(counts.violations, u64::from(!is_on));
            assert_eq!(read(resource.address, "k").unwrap().max_fence, 2);
        }
    }
}
