//! `toctou`: a holder whose lease has ended gives the lock back. Whose lock does that delete?
//!
//! A's lease ends between its look at the lock and its release; B takes the lock; A releases; C
//! asks. If C gets the lock while B's lease still runs, two hold it. The moment between look and
//! release is forced here: it is a matter of luck in real life, and of time.

use crate::experiments::Context;
use crate::experiments::locks::etcd::Etcd;
use crate::experiments::locks::redis::Redis;
use crate::experiments::locks::wire::{Tried, Wire};
use crate::experiments::locks::{Backend, Lock, Wish};
use crate::experiments::report::{Report, yes};
use serde::Serialize;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// The lease of A.
const SHORT: Duration = Duration::from_millis(300);

/// The leases of B and C: longer than the run.
const LONG: Duration = Duration::from_secs(30);

/// How long after its end a lease may still be in B's way.
const PATIENCE: Duration = Duration::from_secs(10);

/// Between two attempts of B.
const RETRY: Duration = Duration::from_millis(10);

/// What was seen of one way to release.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Seen {
    backend: Backend,
    release: &'static str,
    /// Whether A was told that it had released something.
    has_released: bool,
    /// Whether C got the lock that B held.
    is_held_twice: bool,
    /// Releases by another than the holder, as the server counts them. `None`: it does not.
    counted: Option<u64>,
}

pub(crate) fn run(context: &Context<'_>) -> Result<Report, String> {
    let mut report = Report::new(
        "toctou",
        "a holder whose lease has ended gives the lock back: whose lock does that delete?",
        &[
            "backend",
            "release",
            "A was told it released",
            "C got B's lock",
            "counted",
            "verdict",
        ],
    );
    for backend in context.backends() {
        let Some(peer) = context.start(backend.peer(), &mut report) else {
            continue;
        };
        let address = peer.addresses[0];
        let runs = match backend {
            Backend::Redis => vec![get_and_delete(address)?, compare_and_delete(address)?],
            Backend::Fencepost => vec![by_key_and_fence(address)?],
            Backend::Etcd => vec![by_own_key(address)?],
        };
        for seen in runs {
            let verdict = if seen.is_held_twice {
                "TWO HOLDERS"
            } else {
                "safe"
            };
            report.row(
                vec![
                    backend.as_str().to_owned(),
                    seen.release.to_owned(),
                    yes(seen.has_released),
                    yes(seen.is_held_twice),
                    seen.counted
                        .map_or("-".to_owned(), |count| count.to_string()),
                    verdict.to_owned(),
                ],
                &seen,
            );
            let (sentence, holds) = judge(&seen);
            report.claim(sentence, holds);
        }
    }
    Ok(report)
}

/// What a run is to show, and whether it did.
fn judge(seen: &Seen) -> (String, bool) {
    let (name, release) = (seen.backend.as_str(), seen.release);
    if release == GET_AND_DELETE {
        let sentence = format!("{name}: {release} deletes the next holder's lock");
        return (sentence, seen.is_held_twice && seen.has_released);
    }
    let is_safe = !seen.is_held_twice && !seen.has_released;
    match seen.counted {
        None => (format!("{name}: {release} does not"), is_safe),
        Some(count) => (
            format!("{name}: {release} does not, and the server counts the attempt"),
            is_safe && count == 1,
        ),
    }
}

const GET_AND_DELETE: &str = "GET, then DEL";

fn get_and_delete(address: SocketAddr) -> Result<Seen, String> {
    let (mut a, mut b, mut c) = three(address)?;
    let key = "get-and-delete";
    a.try_acquire(key, SHORT)?.ok_or("A got no lock")?;
    let is_ours = a.command(&["GET", key])? == "a";
    take(|| b.try_acquire(key, LONG))?;
    let deleted = match is_ours {
        true => a.command(&["DEL", key])?,
        false => return Err("A did not find its own lock".to_owned()),
    };
    Ok(Seen {
        backend: Backend::Redis,
        release: GET_AND_DELETE,
        has_released: deleted == "1",
        is_held_twice: c.try_acquire(key, LONG)?.is_some(),
        counted: None,
    })
}

fn compare_and_delete(address: SocketAddr) -> Result<Seen, String> {
    let (mut a, mut b, mut c) = three(address)?;
    let key = "compare-and-delete";
    a.try_acquire(key, SHORT)?.ok_or("A got no lock")?;
    take(|| b.try_acquire(key, LONG))?;
    Ok(Seen {
        backend: Backend::Redis,
        release: "compare and delete in one script",
        has_released: a.release_key(key)?,
        is_held_twice: c.try_acquire(key, LONG)?.is_some(),
        counted: None,
    })
}

fn by_key_and_fence(address: SocketAddr) -> Result<Seen, String> {
    let connect = || Wire::connect(address);
    let (mut a, mut b, mut c) = (connect()?, connect()?, connect()?);
    let (key, counter) = ("key-and-fence", "release_by_non_owner_total");
    let before = c.stat(counter)?;
    let Tried::Granted { fence } = a.try_acquire(key, SHORT)? else {
        return Err("A got no lock".to_owned());
    };
    take(|| match b.try_acquire(key, LONG)? {
        Tried::Granted { fence } => Ok(Some(fence)),
        Tried::Held | Tried::NotNow => Ok(None),
    })?;
    Ok(Seen {
        backend: Backend::Fencepost,
        release: "by key and fence",
        has_released: a.release(key, fence)?,
        is_held_twice: matches!(c.try_acquire(key, LONG)?, Tried::Granted { .. }),
        counted: Some(c.stat(counter)? - before),
    })
}

/// etcd's shortest lease is two seconds, and it looks for ended ones twice a second.
fn by_own_key(address: SocketAddr) -> Result<Seen, String> {
    let wish = |ttl, wait| Wish {
        key: "own-key".to_owned(),
        ttl,
        wait,
        is_renewed: false,
    };
    let (mut a, mut b, mut c) = (Etcd::new(address), Etcd::new(address), Etcd::new(address));
    a.acquire(&wish(SHORT, Duration::ZERO))?;
    b.acquire(&wish(LONG, PATIENCE))?;
    let has_released = a.release()?;
    Ok(Seen {
        backend: Backend::Etcd,
        release: "by a key of its own",
        has_released,
        // A lock service that only knows waiting gives no answer to a client that does not wait.
        is_held_twice: c
            .acquire_within(&wish(LONG, Duration::ZERO), RETRY * 50)?
            .is_some(),
        counted: None,
    })
}

fn three(address: SocketAddr) -> Result<(Redis, Redis, Redis), String> {
    let connect = |name| Redis::connect(address, name);
    Ok((connect("a")?, connect("b")?, connect("c")?))
}

/// Tries until the lock is had, which must be soon after A's lease has ended.
fn take(mut attempt: impl FnMut() -> Result<Option<u64>, String>) -> Result<u64, String> {
    let begun = Instant::now();
    while begun.elapsed() < SHORT + PATIENCE {
        if let Some(fence) = attempt()? {
            return Ok(fence);
        }
        std::thread::sleep(RETRY);
    }
    Err("B got no lock".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(release: &'static str, is_held_twice: bool, counted: Option<u64>) -> Seen {
        Seen {
            backend: Backend::Redis,
            release,
            has_released: is_held_twice,
            is_held_twice,
            counted,
        }
    }

    #[test]
    fn get_and_delete_has_to_do_harm_and_the_others_none() {
        assert!(judge(&seen(GET_AND_DELETE, true, None)).1);
        assert!(!judge(&seen(GET_AND_DELETE, false, None)).1);
        assert!(judge(&seen("other", false, None)).1);
        assert!(!judge(&seen("other", true, None)).1);
    }

    #[test]
    fn who_counts_must_count_one() {
        assert!(judge(&seen("other", false, Some(1))).1);
        assert!(!judge(&seen("other", false, Some(0))).1);
    }
}
