//! A booking service on several machines that never gives a table to two guests.
//!
//! ```sh
//! cargo run -p fencepost --example booking [ADDRESS]
//! ```
//!
//! Two guests want the last table, and their requests land on different machines. The lock answers
//! the second one at once: another guest is just booking it. That covers everything but a machine
//! that pauses (a collection of garbage, a slow disk) after it got the lock and before it writes;
//! by then another machine may have booked the table. The fence covers that.

#[path = "../support/mod.rs"]
mod support;
#[cfg(test)]
mod tests;

use fencepost::{Acquisition, Client, Fence};
use fencepost_resource::{FenceGuard, Refusal};
use std::collections::HashMap;
use std::error::Error;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use support::Locks;

/// A booking takes a few milliseconds; if it takes that long, another machine may try.
const LEASE: Duration = Duration::from_secs(2);

/// The book at the door, which all machines write in.
#[derive(Clone)]
struct Book {
    guard: FenceGuard,
    guests: Arc<Mutex<HashMap<String, String>>>,
}

/// What a guest is told.
#[derive(Debug, PartialEq)]
enum Reply {
    Booked,
    Taken {
        by: String,
    },
    /// Another guest is booking this table at the moment.
    Busy,
    /// We were too slow, and another machine had the lock since. Nothing was booked.
    TryAgain,
}

impl Book {
    fn new() -> Book {
        Book {
            guard: FenceGuard::builder().in_memory(),
            guests: Arc::default(),
        }
    }

    /// Writes a guest down, if the table is free and the fence is not stale.
    async fn enter(&self, table: &str, guest: &str, fence: Fence) -> Result<Reply, Refusal> {
        let guests = Arc::clone(&self.guests);
        let (name, guest) = (table.to_owned(), guest.to_owned());
        let write = move || async move {
            let mut guests = guests.lock().unwrap();
            match guests.get(&name) {
                Some(by) => Reply::Taken { by: by.clone() },
                None => {
                    guests.insert(name, guest);
                    Reply::Booked
                }
            }
        };
        match self.guard.write(table, fence, write).await {
            Err(Refusal::Stale(_)) => Ok(Reply::TryAgain),
            reply => reply,
        }
    }
}

/// One request on one machine. `check` is whatever takes time: the card, the calendar, the weather.
async fn book<C>(
    client: &Client,
    book: &Book,
    table: &str,
    guest: &str,
    check: impl FnOnce() -> C,
) -> Result<Reply, Box<dyn Error>>
where
    C: Future<Output = ()>,
{
    let lock = client
        .lock(format!("tables/{table}"))
        .ttl(LEASE)
        .metadata(guest);
    match lock.try_acquire().await? {
        Acquisition::Held(_) => Ok(Reply::Busy),
        Acquisition::Acquired(guard) => {
            check().await;
            // The guard is released when it is dropped, whatever comes of this.
            Ok(book.enter(table, guest, guard.fence()).await?)
        }
    }
}

impl fmt::Display for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reply::Booked => write!(f, "booked"),
            Reply::Taken { by } => write!(f, "taken, by {by}"),
            Reply::Busy => write!(f, "another guest is booking it just now"),
            Reply::TryAgain => write!(f, "that took too long; nothing was booked"),
        }
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let locks = Locks::from_args()?;
    let the_book = Book::new();
    let (one, other) = (
        locks.client("machine-1").await?,
        locks.client("machine-2").await?,
    );
    let quick = async || tokio::time::sleep(Duration::from_millis(20)).await;

    println!("One after the other:");
    println!(
        "  T1 for Ann: {}",
        book(&one, &the_book, "T1", "Ann", quick).await?
    );
    println!(
        "  T1 for Bob: {}",
        book(&one, &the_book, "T1", "Bob", quick).await?
    );

    println!("At the same time:");
    let (cid, dot) = tokio::join!(
        book(&one, &the_book, "T2", "Cid", quick),
        book(&other, &the_book, "T2", "Dot", quick),
    );
    println!("  T2 for Cid: {}\n  T2 for Dot: {}", cid?, dot?);

    println!("The first machine stops for five seconds, and its lock is gone after two:");
    let paused = async {
        // Asked for without renewal: a machine that stands still renews nothing.
        let guard = one
            .lock("tables/T3")
            .ttl(LEASE)
            .no_renew()
            .acquire()
            .await?;
        tokio::time::sleep(Duration::from_secs(5)).await;
        Ok::<_, Box<dyn Error>>(the_book.enter("T3", "Eve", guard.fence()).await?)
    };
    let meanwhile = async {
        tokio::time::sleep(Duration::from_secs(3)).await;
        book(&other, &the_book, "T3", "Flo", quick).await
    };
    let (eve, flo) = tokio::join!(paused, meanwhile);
    println!("  T3 for Eve: {}\n  T3 for Flo: {}", eve?, flo?);
    Ok(())
}
