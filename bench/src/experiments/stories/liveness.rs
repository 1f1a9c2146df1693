//! `liveness`: the holder is killed. How long does the key stay blocked?
//!
//! A worker takes the lock, is killed with SIGKILL at once, and another waits for the lock. Unit:
//! milliseconds from the kill to the next grant. On Fencepost also with a session that is shorter
//! than the lease: the session ends some time after the last sign of the client, and all its locks
//! with it. Redis has no sessions; a lock of etcd always lives by its lease, and its leases are
//! whole seconds, two at the least.
//!
//! The other half of the question is what the shortest lease costs: `pause` is played with it, with
//! a fence, and must end well.

use super::pause::{Stop, Story, play_all};
use crate::experiments::Context;
use crate::experiments::locks::Backend;
use crate::experiments::processes::crew::Job;
use crate::experiments::processes::worker::{Switch, now_ms};
use crate::experiments::report::Report;
use serde::Serialize;
use std::net::SocketAddr;
use std::time::Duration;

const TTLS: [Duration; 3] = [
    Duration::from_millis(500),
    Duration::from_secs(2),
    Duration::from_secs(10),
];

/// How long after a lease's end its key may stay blocked.
const PATIENCE: Duration = Duration::from_secs(20);

/// How much earlier than a lease's end its key may be free: the lease began when it was granted,
/// the kill came a moment later.
const EARLY_MS: f64 = 250.0;

/// How much later than by the end of its lease a key may be free and still be called free on time,
/// on a busy machine.
const LATE_MS: f64 = 1_500.0;

/// Sessions that are tried with the longest lease.
const SESSIONS: [Duration; 2] = [TTLS[0], TTLS[1]];

#[derive(Clone)]
struct Setting {
    backend: Backend,
    server: SocketAddr,
    ttl: Duration,
    session_ttl: Option<Duration>,
}

#[derive(Serialize)]
struct Line {
    backend: Backend,
    session_ms: Option<u64>,
    ttl_ms: u64,
    blocked_ms: f64,
}

impl Setting {
    /// Milliseconds from the kill to the next grant.
    fn measure(&self) -> Result<f64, String> {
        let job = Job {
            backend: self.backend,
            server: self.server,
            resource: None,
            fence: Switch::On,
            key: format!(
                "liveness-{}-{}",
                self.ttl.as_millis(),
                self.session_ttl.unwrap_or_default().as_millis()
            ),
            ttl: self.ttl,
            wait: self.ttl + PATIENCE,
            pause: Duration::ZERO,
            work: Duration::from_secs(60),
            is_renewed: false,
            session_ttl: self.session_ttl,
        };
        let name = |worker: &str| format!("{worker}-{}", job.key);
        let mut holder = job.start(&name("a"))?;
        let heir_job = Job {
            work: Duration::ZERO,
            ..job.clone()
        };
        holder.acquired(PATIENCE)?;
        holder.kill()?;
        let killed_at = now_ms();
        let heir = heir_job.start(&name("b"))?;
        let (_, granted_at) = heir.acquired(self.ttl + PATIENCE)?;
        heir.released(PATIENCE)?;
        Ok(granted_at - killed_at)
    }
}

pub(crate) fn run(context: &Context<'_>) -> Result<Report, String> {
    let mut report = Report::new(
        "liveness",
        "the holder is killed: how long does the key stay blocked?",
        &["backend", "lease", "session", "blocked"],
    );
    let mut settings = Vec::new();
    let mut peers = Vec::new();
    for backend in context.backends() {
        let Some(peer) = context.start(backend.peer(), &mut report) else {
            continue;
        };
        for ttl in TTLS {
            if backend == Backend::Etcd && ttl < Duration::from_secs(1) {
                continue;
            }
            settings.push(Setting {
                backend,
                server: peer.addresses[0],
                ttl,
                session_ttl: None,
            });
        }
        if backend == Backend::Fencepost {
            settings.extend(SESSIONS.map(|session_ttl| Setting {
                backend,
                server: peer.addresses[0],
                ttl: TTLS[2],
                session_ttl: Some(session_ttl),
            }));
        }
        peers.push((backend, peer));
    }
    // They do nothing but wait, so all of them do it at the same time.
    let measured: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = settings
            .iter()
            .map(|setting| scope.spawn(|| setting.measure()))
            .collect();
        let ended = threads.into_iter().map(|thread| thread.join());
        ended.collect()
    });
    for (setting, blocked) in settings.iter().zip(measured) {
        let blocked_ms = blocked.map_err(|_| "a run came to no end".to_owned())??;
        let limit = setting.session_ttl.unwrap_or(setting.ttl).min(setting.ttl);
        let seconds = |time: Duration| format!("{:.1} s", time.as_secs_f64());
        report.row(
            vec![
                setting.backend.as_str().to_owned(),
                seconds(setting.ttl),
                setting.session_ttl.map_or("-".to_owned(), seconds),
                format!("{:.2} s", blocked_ms / 1e3),
            ],
            &Line {
                backend: setting.backend,
                session_ms: setting.session_ttl.map(|ttl| ttl.as_millis() as u64),
                ttl_ms: setting.ttl.as_millis() as u64,
                blocked_ms,
            },
        );
        let what = if setting.session_ttl.is_some() {
            "session"
        } else {
            "lease"
        };
        report.claim(
            format!(
                "{}: a dead holder's key is free when its {what} of {limit:?} ends, not before, and at most {:.1} s later",
                setting.backend.as_str(),
                LATE_MS / 1e3
            ),
            is_on_time(blocked_ms, limit.as_secs_f64() * 1e3),
        );
    }
    add_price(&peers, &mut report)?;
    Ok(report)
}

/// Whether a key was free neither long before nor long after the end of the lease.
fn is_on_time(blocked_ms: f64, ttl_ms: f64) -> bool {
    (ttl_ms - EARLY_MS..=ttl_ms + LATE_MS).contains(&blocked_ms)
}

/// What the shortest lease costs where the resource looks at fences: nothing is written that should
/// not be.
fn add_price(
    peers: &[(Backend, crate::load::peers::Peer)],
    report: &mut Report,
) -> Result<(), String> {
    let ttl = TTLS[0];
    let stories: Vec<Story> = peers
        .iter()
        .filter(|(backend, _)| *backend != Backend::Etcd)
        .map(|(backend, peer)| Story {
            backend: *backend,
            server: peer.addresses[0],
            is_fenced: true,
            stop: Stop::Signal,
            ttl,
            pause: ttl * 4,
            is_renewed: false,
        })
        .collect();
    for (story, seen) in stories.iter().zip(play_all(&stories)) {
        report.claim(
            format!(
                "{}: with a fence the shortest lease ({ttl:?}) costs no safety: a holder stopped for {:?} got 409, the value is intact",
                story.backend.as_str(),
                story.pause
            ),
            seen?.is_saved(),
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_is_free_too_early_or_far_too_late_is_not_on_time() {
        assert!(is_on_time(2_010.0, 2_000.0));
        assert!(is_on_time(1_990.0, 2_000.0));
        assert!(!is_on_time(100.0, 2_000.0));
        assert!(!is_on_time(5_000.0, 2_000.0));
    }
}
