//! A leader that steps down when its lock is lost.
//!
//! ```sh
//! cargo run -p fencepost --example leader [ADDRESS]
//! ```
//!
//! Every candidate stands in line for one lock. Its holder leads, for as long as the watchdog
//! renews it, and works until [`Guard::lost`] says otherwise; then it drops what it was doing and
//! stands in line again. Stepping down makes a change of leaders quick and quiet. What makes it
//! safe is that every order of a leader carries its fence, and that the cluster refuses the fences
//! of former leaders.
//!
//! [`Guard::lost`]: fencepost::Guard::lost

#[path = "../support/mod.rs"]
mod support;
#[cfg(test)]
mod tests;

use fencepost::{Client, Fence, LockError, Loss};
use fencepost_resource::{FenceGuard, Policy, Refusal};
use std::error::Error;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use support::Locks;

const LEADERSHIP: &str = "cluster/leader";

/// How long a leader may be silent before it is replaced.
const LEASE: Duration = Duration::from_secs(2);

/// How long a candidate stands in line. The line is the server's, and standing in it costs nothing.
const WAIT: Duration = Duration::from_secs(3600);

/// The cluster takes orders.
#[derive(Clone)]
struct Cluster {
    guard: FenceGuard,
    orders: Arc<Mutex<Vec<(Fence, String)>>>,
}

impl Cluster {
    fn new() -> Cluster {
        Cluster {
            // One leadership, many orders.
            guard: FenceGuard::builder().policy(Policy::AtLeast).in_memory(),
            orders: Arc::default(),
        }
    }

    async fn obey(&self, fence: Fence, order: String) -> Result<(), Refusal> {
        let orders = Arc::clone(&self.orders);
        let write = move || async move { orders.lock().unwrap().push((fence, order)) };
        self.guard.write(LEADERSHIP, fence, write).await
    }
}

/// Stands in line, leads, and comes back when that is over; with what ended it, and the fence it
/// had led under.
///
/// `term` is what the leader does. It is dropped where it stands as soon as the lock is lost.
async fn lead_once<T>(
    client: &Client,
    term: impl FnOnce(Fence) -> T,
) -> Result<(Fence, Loss), LockError>
where
    T: Future<Output = ()>,
{
    let guard = client
        .lock(LEADERSHIP)
        .ttl(LEASE)
        .wait(WAIT)
        .acquire()
        .await?;
    let fence = guard.fence();
    tokio::select! {
        biased;
        loss = guard.lost() => Ok((fence, loss)),
        // Retired: the lock goes to the next in line at once.
        () = term(fence) => {
            drop(guard);
            Ok((fence, Loss::Released))
        }
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let locks = Locks::from_args()?;
    let cluster = Cluster::new();
    let mut candidates = Vec::new();
    for name in ["Ann", "Bob", "Cid"] {
        let (client, cluster) = (locks.client(name).await?, cluster.clone());
        candidates.push(tokio::spawn(async move {
            let term = |fence| async move {
                println!("{name} leads under fence {fence}");
                // Bob would go on for ever.
                for order in 0.. {
                    if name != "Bob" && order == 3 {
                        return;
                    }
                    let _ = cluster
                        .obey(fence, format!("order {order} of {name}"))
                        .await;
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            };
            match lead_once(&client, term).await {
                Ok((_, loss)) => println!("{name} stepped down: {loss}"),
                Err(error) => println!("{name} never led: {error}"),
            }
        }));
    }

    // So an operator takes it away from him.
    let operator = locks.client("operator").await?;
    while candidates.iter().any(|candidate| !candidate.is_finished()) {
        for holder in operator.query(LEADERSHIP).await?.holders {
            if holder.client_name == "Bob" && cluster.orders.lock().unwrap().len() > 6 {
                operator.force_release(LEADERSHIP, holder.fence).await?;
            }
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let orders = cluster.orders.lock().unwrap();
    println!(
        "{} orders, with rising fences: {}",
        orders.len(),
        orders.is_sorted_by_key(|order| order.0)
    );
    Ok(())
}
