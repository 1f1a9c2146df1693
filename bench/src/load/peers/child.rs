//! Processes of peers: started, stopped by their ids, held still while another peer is measured,
//! and looked at in /proc.

use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// How long a peer may take until it can be connected to.
const START_TIMEOUT: Duration = Duration::from_secs(15);

/// How long a peer may take to end once it is told to.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);

/// How often we look whether it has.
const LOOK: Duration = Duration::from_millis(5);

/// One process of a peer. Dropping it ends it.
pub(crate) struct Process {
    child: Child,
    pid: Pid,
}

/// What a process has used so far.
#[derive(Clone, Copy, Default)]
pub(crate) struct Usage {
    pub(crate) cpu: Duration,
    pub(crate) resident_bytes: u64,
}

impl Process {
    /// Starts a program that goes when we go, even if we are killed.
    ///
    /// `guard` of this very program stands in between: it asks the kernel for that, and then
    /// becomes the other program.
    pub(crate) fn start(program: &Path, arguments: &[String], log: &Path) -> io::Result<Process> {
        let log = fs::File::create(log)?;
        let mut command = Command::new(std::env::current_exe()?);
        command
            .arg("guard")
            .arg("--")
            .arg(program)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log);
        Process::spawn(command)
    }

    /// Starts this program as something else.
    pub(crate) fn spawn(mut command: Command) -> io::Result<Process> {
        let child = command.spawn()?;
        let pid = Pid::from_child(&child);
        Ok(Process { child, pid })
    }

    /// The standard output of the process, once.
    pub(crate) fn take_stdout(&mut self) -> Option<std::process::ChildStdout> {
        self.child.stdout.take()
    }

    /// Waits until the child listens at `address`.
    pub(crate) fn wait_for(&mut self, address: SocketAddr) -> io::Result<()> {
        let begun = Instant::now();
        loop {
            if let Some(status) = self.ended()? {
                return Err(io::Error::other(format!("ended at once: {status}")));
            }
            if TcpStream::connect(address).is_ok() {
                return Ok(());
            }
            if begun.elapsed() > START_TIMEOUT {
                return Err(io::ErrorKind::TimedOut.into());
            }
            std::thread::sleep(LOOK);
        }
    }

    /// How it ended, if it has.
    pub(crate) fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        self.child.try_wait()
    }

    /// Tells it to stop in good order.
    pub(crate) fn terminate(&self) {
        // It fails only for a process that is gone.
        let _ = kill_process(self.pid, Signal::TERM);
    }

    /// Ends it with SIGKILL. Returns when it is gone.
    pub(crate) fn kill(mut self) -> io::Result<()> {
        self.child.kill()?;
        self.child.wait().map(|_| ())
    }

    /// Holds the process still, or lets it go on.
    pub(crate) fn hold(&self, is_held: bool) {
        let signal = if is_held { Signal::STOP } else { Signal::CONT };
        // It fails only for a process that is gone, which the next request finds out.
        let _ = kill_process(self.pid, signal);
    }

    /// What it has used so far, by /proc.
    pub(crate) fn usage(&self) -> Usage {
        let path = format!("/proc/{}", self.pid.as_raw_nonzero());
        Usage {
            cpu: fs::read_to_string(format!("{path}/stat"))
                .ok()
                .and_then(|stat| cpu_of(&stat))
                .unwrap_or_default(),
            resident_bytes: Process::resident_bytes_of(self.child.id()),
        }
    }

    /// The resident memory of any process; zero if there is none.
    pub(crate) fn resident_bytes_of(pid: u32) -> u64 {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok();
        status
            .and_then(|status| resident_of(&status))
            .unwrap_or_default()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if !matches!(self.child.try_wait(), Ok(None)) {
            // Gone and waited for: its number may be another process's by now.
            return;
        }
        self.terminate();
        self.hold(false);
        let begun = Instant::now();
        while begun.elapsed() < STOP_TIMEOUT {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(LOOK);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What the hidden command `guard` does: becomes another program, which is killed when the bench
/// ends.
pub(crate) fn guard(command: &[String]) -> io::Error {
    if let Err(error) = die_with_parent() {
        return error;
    }
    let Some((program, arguments)) = command.split_first() else {
        return io::ErrorKind::InvalidInput.into();
    };
    Command::new(program).args(arguments).exec()
}

/// Has the kernel end this process when its parent does.
pub(crate) fn die_with_parent() -> io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL)).map_err(io::Error::from)
}

/// A port that was free a moment ago.
pub(crate) fn free_address() -> io::Result<SocketAddr> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()
}

/// Several of them, all different.
pub(crate) fn free_addresses(count: usize) -> io::Result<Vec<SocketAddr>> {
    let bind = |_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
    // All are kept until the last one is found.
    let listeners: Vec<TcpListener> = (0..count).map(bind).collect::<io::Result<_>>()?;
    listeners.iter().map(TcpListener::local_addr).collect()
}

/// User and system time in a line of /proc/PID/stat.
fn cpu_of(stat: &str) -> Option<Duration> {
    // The name, in parentheses, may hold anything. User time is the twelfth field after it.
    let fields = stat.rsplit_once(')')?.1;
    let mut fields = fields.split_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    let ticks = rustix::param::clock_ticks_per_second();
    Some(Duration::from_nanos(
        (user + system) * (1_000_000_000 / ticks),
    ))
}

/// Resident bytes in /proc/PID/status.
fn resident_of(status: &str) -> Option<u64> {
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_is_found_behind_any_name() {
        let stat = "42 (a) b (c)) S 1 2 3 4 5 6 7 8 9 10 150 50 0 0 20 0 1";
        let ticks = rustix::param::clock_ticks_per_second();
        let expected = Duration::from_millis(200 * 1000 / ticks);
        assert_eq!(cpu_of(stat), Some(expected));
        assert_eq!(cpu_of("nonsense"), None);
    }

    #[test]
    fn free_addresses_differ() {
        let mut addresses = free_addresses(15).unwrap();
        addresses.sort_unstable();
        addresses.dedup();
        assert_eq!(addresses.len(), 15);
    }

    #[test]
    fn resident_memory_is_in_bytes() {
        let status = "Name:\tx\nVmHWM:\t    99 kB\nVmRSS:\t    12 kB\n";
        assert_eq!(resident_of(status), Some(12 * 1024));
    }
}
