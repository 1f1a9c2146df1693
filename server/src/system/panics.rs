//! What becomes of a server one of whose threads panics.
//!
//! A panic is a mistake of ours, and what it leaves behind is not known: a core without wheels or
//! mail, a keeper that raises no ceilings. So the server does not serve on. The program `fencepost`
//! ends with [`EXIT_PANIC`]; its clients come back as after a crash. A server inside another
//! program must not end its host unasked: it stops ([`OnPanic::Stop`]), says so, and leaves its log
//! as a crash would, without the mark of a clean stop.
//!
//! tokio catches what a task panics with. So every task and every thread of a server holds a
//! [`Watch`], which is dropped while the panic unwinds.

use std::sync::{Arc, OnceLock};
use tokio_util::sync::CancellationToken;

/// The exit code of a process that a panic has ended: EX_SOFTWARE.
pub const EXIT_PANIC: i32 = 70;

/// What a server does when one of its threads panics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnPanic {
    /// It stops serving and says so; [`Server::failure`](crate::Server::failure) tells the thread.
    /// For a server inside another program.
    #[default]
    Stop,
    /// It ends the whole process, with [`EXIT_PANIC`]. What [`run`](crate::run) does.
    EndProcess,
}

/// Whether a server has failed, and how to stop it if it does.
pub(crate) struct Failure {
    on_panic: OnPanic,
    /// The name of the thread that was first to panic.
    thread: OnceLock<String>,
    stop: CancellationToken,
}

impl Failure {
    /// `stop` is cancelled when a thread panics.
    pub(crate) fn new(on_panic: OnPanic, stop: CancellationToken) -> Arc<Self> {
        let thread = OnceLock::new();
        Arc::new(Failure {
            on_panic,
            thread,
            stop,
        })
    }

    /// The thread that has panicked, if one has.
    pub(crate) fn thread(&self) -> Option<&str> {
        self.thread.get().map(String::as_str)
    }

    /// To be held by a task or a thread for as long as it runs.
    pub(crate) fn watch(self: &Arc<Self>) -> Watch {
        Watch(self.clone())
    }

    fn note_panic(&self) {
        let thread = thread_name();
        if self.on_panic == OnPanic::EndProcess {
            end_process(&thread);
        }
        if self.thread.set(thread.clone()).is_ok() {
            tracing::error!(
                thread,
                "a thread of the server panicked: the server stops, and its log is left as after a crash"
            );
        }
        self.stop.cancel();
    }
}

/// Tells the server if the task or thread that holds it panics.
pub(crate) struct Watch(Arc<Failure>);

impl Drop for Watch {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.note_panic();
        }
    }
}

/// From here on, a panic in any thread ends the process. For a process that is a server and nothing
/// else.
pub(crate) fn end_process_on_panic() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        // Where and why, as always.
        usual(panic);
        end_process(&thread_name());
    }));
}

fn end_process(thread: &str) -> ! {
    tracing::error!(
        thread,
        code = EXIT_PANIC,
        "a thread of the server panicked: the server ends here, as if it had been killed"
    );
    std::process::exit(EXIT_PANIC);
}

fn thread_name() -> String {
    let thread = std::thread::current();
    thread.name().unwrap_or("without a name").to_owned()
}
