//! What a client does all day: takes locks of every kind on a few keys, keeps them for a while,
//! renews them, gives them back, forgets them, or waits until they are gone; and writes down what
//! it was told.

use crate::history::{End, Grant, GrantIndex, Recorder, Sighting};
use fencepost::{Acquisition, Client, Error, Guard, LockError, Loss, Mode, Release};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::time::sleep;

/// Short, so that leases end in the middle of everything, and grace periods soon.
const TTL_MS: std::ops::Range<u64> = 200..1_500;
/// How often a guard is asked how long it is good for.
const SAMPLE: Duration = Duration::from_millis(20);

/// What all workers share.
pub struct Shared {
    /// What they write to.
    pub recorder: Arc<Recorder>,
    /// It is time to come to an end.
    pub stop: AtomicBool,
    /// Failures by their first words. They are to be expected while the server is down; they are
    /// shown, so that a reader can see whether others are among them.
    pub failures: Mutex<BTreeMap<String, u64>>,
}

impl Shared {
    /// Whether it is time to come to an end.
    pub fn is_stopping(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Notes a failure.
    pub fn note(&self, failure: &Error) {
        let what = match failure {
            Error::Disconnected { .. } => "not connected".to_owned(),
            Error::NoAnswer { .. } => "no answer in time".to_owned(),
            Error::Unavailable { reason, .. } => format!("unavailable: {reason}"),
            Error::Busy { bound, .. } => format!("busy: {bound}"),
            Error::Refused { code, message } => format!("refused: {code}: {message}"),
            Error::Lost(loss) => format!("lost: {loss:?}"),
            other => format!("{other:?}"),
        };
        *self.failures.lock().entry(what).or_default() += 1;
    }
}

/// One task of one client.
pub(crate) struct Worker {
    pub(crate) shared: Arc<Shared>,
    pub(crate) keys: Vec<Arc<str>>,
    /// The one of them that no other task of this client locks. Of this one it takes more than one
    /// hold at a time: the server counts holds by session, so of any other key its second hold
    /// could be added to a grant of another task, whose release would then not be the last one.
    pub(crate) own_key: Option<Arc<str>>,
    /// Takes and gives back, as fast as it goes, so that there is always something under way when
    /// the server is killed.
    pub(crate) is_hectic: bool,
    pub(crate) client: Client,
    pub(crate) session_ttl: Duration,
    pub(crate) name: Arc<str>,
    pub(crate) random: fastrand::Rng,
}

/// How a lock is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manner {
    /// For a moment.
    Briefly,
    /// Renewed by hand.
    Renewing,
    /// Renewed by the client itself.
    Watched,
    /// As long as the session.
    SessionBound,
    /// Until its time is over.
    UntilExpired,
}

impl Worker {
    /// Works until it is time to stop, and takes at most some seconds more.
    pub(crate) async fn run(mut self) {
        while !self.shared.is_stopping() {
            match self.random.u8(..10) {
                0 => self.look().await,
                _ => self.lock().await,
            }
            if self.is_hectic {
                continue;
            }
            let pause = Duration::from_micros(self.random.u64(..10_000));
            sleep(pause).await;
        }
    }

    fn pick_key(&mut self) -> Arc<str> {
        let index = self.random.usize(..self.keys.len());
        self.keys[index].clone()
    }

    /// Asks for the holders of a key.
    async fn look(&mut self) {
        let key = self.pick_key();
        let recorder = &self.shared.recorder;
        let begun = recorder.now();
        match self.client.query(&*key).await {
            Ok(state) => {
                let answered = recorder.now();
                for holder in state.holders {
                    recorder.saw(Sighting {
                        key: key.clone(),
                        fence: holder.fence.get(),
                        is_shared: holder.mode.is_shared(),
                        begun,
                        answered,
                    });
                }
            }
            Err(error) => self.failed(&error).await,
        }
    }

    /// Takes a lock and does something with it.
    async fn lock(&mut self) {
        let key = self.pick_key();
        let manner = match self.random.u8(..10) {
            _ if self.is_hectic => Manner::Briefly,
            0..4 => Manner::Briefly,
            4..6 => Manner::Renewing,
            6..8 => Manner::Watched,
            8 => Manner::SessionBound,
            _ => Manner::UntilExpired,
        };
        let ttl = match manner {
            Manner::SessionBound => self.session_ttl,
            _ => Duration::from_millis(self.random.u64(TTL_MS)),
        };
        let request = self.client.lock(&*key);
        let request = match manner {
            Manner::SessionBound => request.session_bound(),
            Manner::Watched | Manner::Briefly => request.ttl(ttl),
            Manner::Renewing | Manner::UntilExpired => request.ttl(ttl).no_renew(),
        };
        let is_shared = self.random.u8(..5) == 0;
        let request = match is_shared {
            true => request.shared(),
            false => request,
        };
        let recorder = self.shared.recorder.clone();
        let begun = recorder.now();
        let guard = match self.random.u8(..3) {
            0 => match request.try_acquire().await {
                Ok(Acquisition::Acquired(guard)) => guard,
                Ok(Acquisition::Held(contention)) => {
                    return self.saw(&key, begun, contention);
                }
                Err(error) => return self.failed(&error).await,
            },
            _ => {
                let wait = Duration::from_millis(self.random.u64(..1_000));
                match request.wait(wait).acquire().await {
                    Ok(guard) => guard,
                    Err(LockError::NotAcquired(contention)) => {
                        return self.saw(&key, begun, contention);
                    }
                    Err(LockError::Failed(error)) => return self.failed(&error).await,
                    Err(LockError::Lost(loss)) => return self.failed(&Error::Lost(loss)).await,
                    Err(_) => return,
                }
            }
        };
        let answered = recorder.now();
        let grant = recorder.granted(Grant {
            key,
            fence: guard.fence().get(),
            is_shared,
            holder: self.name.clone(),
            ttl_us: ttl.as_micros() as u64,
            begun,
            answered,
            promises: vec![recorder.time_of(guard.valid_until())],
            end: End::Open,
        });
        self.hold(guard, grant, manner, ttl).await;
    }

    async fn hold(&mut self, guard: Guard, grant: GrantIndex, manner: Manner, ttl: Duration) {
        let hold = match manner {
            Manner::Briefly if self.is_hectic => Duration::from_micros(self.random.u64(..5_000)),
            Manner::Briefly => Duration::from_millis(self.random.u64(..50)),
            Manner::UntilExpired => ttl + Duration::from_secs(5),
            _ => Duration::from_millis(self.random.u64(100..1_500)),
        };
        let until = tokio::time::Instant::now() + hold;
        let lost = guard.lost();
        tokio::pin!(lost);
        let recorder = self.shared.recorder.clone();
        // Whether it is known how often this client holds the lock.
        let mut is_counted = true;
        loop {
            let is_over = tokio::time::Instant::now() >= until;
            if is_over || (self.shared.is_stopping() && manner != Manner::UntilExpired) {
                return self.give_back(guard, grant, is_counted).await;
            }
            let pause = match manner {
                Manner::Renewing => ttl / 4,
                Manner::Briefly => hold,
                _ => SAMPLE,
            };
            tokio::select! {
                loss = &mut lost => return self.lost(grant, loss),
                () = sleep(pause) => {}
            }
            if self.may_hold_once_more(&guard, manner) && self.random.bool() {
                is_counted &= self.hold_once_more(&guard, ttl).await;
            }
            if manner == Manner::Renewing {
                match guard.renew().await {
                    Ok(_) => {}
                    Err(Error::Lost(loss)) => return self.lost(grant, loss),
                    // It is as valid as it was.
                    Err(error) => self.shared.note(&error),
                }
            }
            recorder.promised(grant, recorder.time_of(guard.valid_until()));
        }
    }

    /// Whether a second hold would certainly be one of this very grant, and short beside it.
    fn may_hold_once_more(&self, guard: &Guard, manner: Manner) -> bool {
        let is_own = self
            .own_key
            .as_ref()
            .is_some_and(|own| own.as_bytes() == guard.key());
        is_own && manner == Manner::Watched && guard.mode() == Mode::Exclusive
    }

    /// One hold more of the same lock, for a moment. The first hold must outlive that. `false` if
    /// it is not known what came of it: then the server may count a hold that no guard has.
    async fn hold_once_more(&mut self, guard: &Guard, ttl: Duration) -> bool {
        let request = self.client.lock(guard.key()).ttl(ttl).reentrant();
        // The lock may have been lost meanwhile. Then this is a grant of its own. Which of the two
        // is not known, so it is not recorded.
        let released = match request.try_acquire().await {
            Ok(Acquisition::Acquired(inner)) => {
                sleep(Duration::from_millis(self.random.u64(..30))).await;
                inner.release().await.map(|_| ())
            }
            Ok(Acquisition::Held(_)) => Ok(()),
            Err(error) => Err(error),
        };
        if let Err(error) = &released {
            self.shared.note(error);
        }
        released.is_ok()
    }

    async fn give_back(&mut self, guard: Guard, grant: GrantIndex, is_counted: bool) {
        let recorder = self.shared.recorder.clone();
        let begun = recorder.now();
        if self.random.u8(..4) == 0 {
            drop(guard);
            return recorder.ended(grant, End::Abandoned { begun });
        }
        let end = match guard.release().await {
            Ok(Release::Released) if is_counted => End::Released {
                begun,
                answered: recorder.now(),
            },
            // One hold was given back, and it may not have been the last.
            Ok(Release::Released) => End::Abandoned { begun },
            // The release may have been carried out in a life whose answer got lost.
            Ok(Release::AlreadyLost(_)) => End::Abandoned { begun },
            Err(error) => {
                self.shared.note(&error);
                End::Abandoned { begun }
            }
        };
        recorder.ended(grant, end);
    }

    fn lost(&self, grant: GrantIndex, loss: Loss) {
        let by_server = match loss {
            Loss::DeadlinePassed | Loss::Closed | Loss::Released => false,
            // Also any reason of a later version.
            _ => true,
        };
        let end = End::Lost {
            at: self.shared.recorder.now(),
            by_server,
            why: format!("{loss:?}"),
        };
        self.shared.recorder.ended(grant, end);
    }

    fn saw(&self, key: &Arc<str>, begun: u64, contention: fencepost::Contention) {
        let recorder = &self.shared.recorder;
        if let Some(holder) = contention.holder {
            recorder.saw(Sighting {
                key: key.clone(),
                fence: holder.fence.get(),
                is_shared: holder.mode.is_shared(),
                begun,
                answered: recorder.now(),
            });
        }
    }

    async fn failed(&mut self, error: &Error) {
        self.shared.note(error);
        // While the server is down every attempt fails at once.
        let pause = Duration::from_millis(self.random.u64(5..30));
        sleep(pause).await;
    }
}
