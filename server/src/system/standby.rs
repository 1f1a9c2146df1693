//! A thread that has been had from the system and waits for what it is to do. A start gets all its
//! threads before it changes anything, so that a system without one to spare does not stop it
//! half-way.

use std::io;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};

type Work = Box<dyn FnOnce() + Send>;

/// Dropped before it has something to do, the thread ends.
pub(crate) struct Standby {
    hand_over: mpsc::SyncSender<Work>,
    thread: JoinHandle<()>,
}

impl Standby {
    pub(crate) fn spawn(name: String) -> io::Result<Self> {
        let (hand_over, taken) = mpsc::sync_channel::<Work>(1);
        let thread = thread::Builder::new().name(name).spawn(move || {
            if let Ok(work) = taken.recv() {
                work();
            }
        })?;
        Ok(Standby { hand_over, thread })
    }

    /// Sets the thread to work.
    pub(crate) fn begin(self, work: impl FnOnce() + Send + 'static) -> JoinHandle<()> {
        let sent = self.hand_over.send(Box::new(work));
        assert!(sent.is_ok(), "the thread waits for its work");
        self.thread
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_thread_does_its_work_under_its_name() {
        let standby = Standby::spawn("named".to_owned()).unwrap();
        let (tell, told) = mpsc::channel();
        let name = || thread::current().name().map(str::to_owned);
        let thread = standby.begin(move || tell.send(name()).unwrap());
        assert_eq!(told.recv().unwrap().as_deref(), Some("named"));
        thread.join().unwrap();
    }

    #[test]
    fn a_thread_without_work_ends() {
        let Standby { hand_over, thread } = Standby::spawn("idle".to_owned()).unwrap();
        drop(hand_over);
        thread.join().unwrap();
    }
}
