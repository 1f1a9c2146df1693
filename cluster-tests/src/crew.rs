//! Clients that work in a thread of their own until the run stops.

use fencepost::{Builder, Client};
use std::future::Future;
use std::time::Duration;
use tokio::runtime::{self, Runtime};
use tokio::task::JoinHandle;

/// How long a client may take to say goodbye. Without one its session ends by itself.
const GOODBYE_MAX: Duration = Duration::from_secs(5);

/// Clients and what they do.
pub(crate) struct Crew {
    /// What each of them is, as errors tell.
    name: &'static str,
    runtime: Runtime,
    clients: Vec<Client>,
    tasks: Vec<JoinHandle<()>>,
}

impl Crew {
    pub(crate) fn new(name: &'static str) -> Result<Crew, String> {
        let runtime = runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .map_err(|error| format!("the system refused: {error}"))?;
        Ok(Crew {
            name,
            runtime,
            clients: Vec::new(),
            tasks: Vec::new(),
        })
    }

    /// One more client.
    pub(crate) fn connect(&mut self, settings: Builder) -> Result<Client, String> {
        let connected = self.runtime.block_on(settings.name(self.name).connect());
        let client = connected.map_err(|error| format!("a {} cannot connect: {error}", self.name));
        self.clients.extend(client.iter().cloned());
        client
    }

    /// Begins some work that ends once the run stops.
    pub(crate) fn begin(&mut self, work: impl Future<Output = ()> + Send + 'static) {
        self.tasks.push(self.runtime.spawn(work));
    }

    /// Waits for the end of all work.
    pub(crate) fn end(self) -> Result<(), String> {
        self.runtime.block_on(async {
            for task in self.tasks {
                let ended = task.await;
                ended.map_err(|error| format!("a {} failed: {error}", self.name))?;
            }
            for client in self.clients {
                let _ = tokio::time::timeout(GOODBYE_MAX, client.close()).await;
            }
            Ok(())
        })
    }
}
