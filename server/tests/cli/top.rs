//! `fencepost top` in a real terminal: tmux's, whose screen the test reads.

use crate::program::{Held, PATIENCE, Server, UNTIL_RELEASED, await_condition, fencepost, run};
use rustix::process::{Pid, Signal, kill_process};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// A shell in a terminal of tmux's. Ends with the test.
struct Terminal {
    socket: PathBuf,
    /// Removed at the end.
    _dir: tempfile::TempDir,
}

impl Terminal {
    /// `None` where tmux is not installed, which is said loudly.
    fn open(columns: u16, rows: u16) -> Option<Terminal> {
        let dir = tempfile::tempdir().unwrap();
        let terminal = Terminal {
            socket: dir.path().join("tmux"),
            _dir: dir,
        };
        let (columns, rows) = (columns.to_string(), rows.to_string());
        let mut command = terminal.command(&[
            "-f",
            "/dev/null",
            "new-session",
            "-d",
            "-s",
            "t",
            "-x",
            &columns,
            "-y",
            &rows,
        ]);
        command.args(["env", "PS1=ready> ", "sh"]);
        match command.output() {
            Ok(output) if output.status.success() => {}
            Ok(output) => panic!("tmux does not start: {output:?}"),
            Err(error) => {
                eprintln!(
                    "NOT TESTED: `fencepost top` in a terminal needs tmux ({error}). Install the Debian package tmux"
                );
                return None;
            }
        }
        terminal.sees("ready>");
        Some(terminal)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("tmux");
        command.arg("-S").arg(&self.socket).args(arguments);
        // Not the one that the test may run in.
        command.env_remove("TMUX").stdin(Stdio::null());
        command
    }

    #[track_caller]
    fn tmux(&self, arguments: &[&str]) -> Output {
        let output = self.command(arguments).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        output
    }

    /// Types text as it is.
    fn types(&self, text: &str) {
        self.tmux(&["send-keys", "-t", "t", "-l", text]);
    }

    /// Presses a key by its name.
    fn presses(&self, key: &str) {
        self.tmux(&["send-keys", "-t", "t", key]);
    }

    fn screen(&self) -> String {
        let output = self.tmux(&["capture-pane", "-p", "-t", "t"]);
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Waits until the screen is as asked.
    #[track_caller]
    fn shows(&self, what: &str, is_so: impl Fn(&str) -> bool) -> String {
        let begun = Instant::now();
        loop {
            let screen = self.screen();
            if is_so(&screen) {
                return screen;
            }
            assert!(begun.elapsed() < PATIENCE, "no {what} on\n{screen}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    #[track_caller]
    fn sees(&self, text: &str) -> String {
        self.shows(text, |screen| screen.contains(text))
    }

    /// Waits for a line that has nothing else.
    #[track_caller]
    fn prints(&self, line: &str) {
        self.shows(line, |screen| {
            screen.lines().any(|found| found.trim() == line)
        });
    }

    /// Runs the program in the shell.
    fn starts(&self, arguments: &[&str]) {
        let program = fencepost(arguments);
        let mut line = program.get_program().to_str().unwrap().to_owned();
        for argument in program.get_args() {
            line.push(' ');
            line.push_str(argument.to_str().unwrap());
        }
        self.types(&line);
        self.presses("Enter");
    }

    /// Waits until the shell has its terminal back as it was: the screen from before, and a mode in
    /// which lines can be typed.
    #[track_caller]
    fn is_given_back(&self, mark: &str) {
        self.shows("shell", |screen| {
            screen.contains(mark) && !screen.contains("QUEUE")
        });
        self.types(
            "clear; stty -a | tr ' ' '\\n' | grep -x -e icanon -e echo | tr '\\n' +; echo done",
        );
        self.presses("Enter");
        let screen = self.shows("modes", |screen| screen.contains("+done"));
        assert!(
            screen.contains("icanon+echo+done") || screen.contains("echo+icanon+done"),
            "{screen}"
        );
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.command(&["kill-server"]).output();
    }
}

/// The process that runs `top` in the terminal's shell.
fn pid_of_top(terminal: &Terminal) -> Pid {
    let output = terminal.tmux(&["display-message", "-p", "-t", "t", "#{pane_pid}"]);
    let shell = String::from_utf8(output.stdout).unwrap();
    let parent = format!("PPid:\t{}", shell.trim());
    let processes = std::fs::read_dir("/proc").unwrap();
    let mut pids = processes.filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok());
    let pid = pids.find(|pid: &i32| {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status"));
        status.is_ok_and(|status| status.lines().any(|line| line == parent))
    });
    Pid::from_raw(pid.expect("top runs")).unwrap()
}

#[test]
fn top_shows_locks_filters_takes_away_and_gives_the_terminal_back() {
    let server = Server::start(&[]);
    let held = Held::key(&server, "jobs/nightly");
    let other = Held::key(&server, "orders/42");
    let Some(terminal) = Terminal::open(110, 30) else {
        return;
    };
    terminal.types("echo before-top");
    terminal.presses("Enter");
    terminal.prints("before-top");
    terminal.starts(&["top", "--server", &server.address, "--every=100ms"]);
    let screen = terminal.shows("locks", |screen| {
        screen.contains("jobs/nightly") && screen.contains("orders/42")
    });
    assert!(screen.contains("held 2"), "{screen}");
    assert!(screen.contains(&held.fence.to_string()), "{screen}");
    assert!(screen.contains("granting"), "{screen}");

    terminal.presses("/");
    terminal.types("jobs/");
    terminal.sees("filter: jobs/_");
    terminal.presses("Enter");
    terminal.shows("filtered list", |screen| {
        screen.contains("jobs/nightly") && !screen.contains("orders/42")
    });

    // Any other key than y takes nothing away.
    terminal.presses("f");
    terminal.sees("take jobs/nightly");
    terminal.presses("n");
    terminal.sees("nothing was taken away");
    terminal.presses("f");
    terminal.sees("take jobs/nightly");
    terminal.presses("y");
    terminal.shows("an empty list", |screen| {
        screen.lines().any(|line| line.trim() == "nothing")
    });
    assert_eq!(held.end(), Some(143), "its command is stopped");

    // Sessions are sorted and shown.
    terminal.presses("Tab");
    terminal.presses("Tab");
    terminal.sees("ADDRESS");

    // A terminal that becomes small shows what it can.
    terminal.tmux(&["resize-window", "-t", "t", "-x", "30", "-y", "6"]);
    terminal.shows("small frame", |screen| screen.contains("sessions"));
    terminal.tmux(&["resize-window", "-t", "t", "-x", "110", "-y", "30"]);
    terminal.presses("q");
    terminal.is_given_back("before-top");
    assert_eq!(other.release(), Some(0));
}

#[test]
fn the_terminal_is_given_back_after_a_signal_and_when_the_server_goes() {
    let server = Server::start(&[]);
    let Some(terminal) = Terminal::open(100, 24) else {
        return;
    };
    terminal.types("echo before-top");
    terminal.presses("Enter");
    terminal.prints("before-top");
    let arguments = ["top", "--server", &server.address, "--timeout=1s"];
    terminal.starts(&arguments);
    terminal.sees("granting");
    kill_process(pid_of_top(&terminal), Signal::TERM).unwrap();
    terminal.is_given_back("before-top");

    terminal.types("clear; echo again");
    terminal.presses("Enter");
    terminal.prints("again");
    terminal.starts(&arguments);
    terminal.sees("granting");
    let address = server.address.clone();
    server.end_by(Signal::KILL);
    // It says that the server is gone, in the terminal that it has given back.
    let screen = terminal.shows("sentence", |screen| {
        screen.contains("again") && screen.contains("fencepost: ")
    });
    assert!(screen.contains(&address), "{screen}");
    terminal.is_given_back("again");
}

#[test]
fn one_frame_is_printed_for_scripts() {
    let server = Server::start(&[]);
    let held = Held::new(&server, &["jobs/nightly"], UNTIL_RELEASED);
    await_condition(|| {
        let frame = run(["top", "--once", "--server", &server.address]).printed();
        frame.contains("jobs/nightly") && frame.contains("held 1")
    });
    let frame = run(["top", "other/", "--once", "--server", &server.address]).printed();
    assert!(!frame.contains("jobs/nightly"), "{frame}");
    assert!(!frame.contains('\x1b'), "no escapes in {frame}");
    assert_eq!(held.release(), Some(0));
    // Without a terminal there is nothing to draw on.
    let complaint = run(["top", "--server", &server.address]).complained(2);
    assert!(complaint.contains("--once"), "{complaint}");
}
