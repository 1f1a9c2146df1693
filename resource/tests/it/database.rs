//! A real PostgreSQL in a temporary directory, reached over a socket in that directory only.
//!
//! PostgreSQL refuses to run as root, so where the tests do, it runs as another user.

use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;
use tokio_postgres::{Client, NoTls};

/// How long the database may take to let us in.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Database {
    process: Child,
    dir: TempDir,
}

impl Database {
    /// Starts one. `None`: there is none on this machine, and that has been said.
    pub(crate) async fn start() -> Option<Database> {
        let Some(programs) = programs() else {
            let complaint = "\n\
                ###########################################################################\n\
                # NOT TESTED: there is no PostgreSQL on this machine (no initdb found).   #\n\
                # The guard for transactions was not tried. Install it to test that too:  #\n\
                #     apt-get install postgresql                                          #\n\
                ###########################################################################\n";
            // Past the capture of the test harness, which would hide it while the test passes.
            // Appended: a file that stands behind it must not be cut off.
            let mut stderr = fs::OpenOptions::new();
            let stderr = stderr.append(true).open("/dev/stderr");
            if stderr
                .and_then(|mut stderr| stderr.write_all(complaint.as_bytes()))
                .is_err()
            {
                eprintln!("{complaint}");
            }
            return None;
        };
        let dir = TempDir::new().unwrap();
        let user = User::to_run_as();
        if let Some(user) = user {
            chown(dir.path(), Some(user.id), Some(user.group)).unwrap();
        }
        let run = |program: &str| {
            let mut command = Command::new(programs.join(program));
            command
                .current_dir(dir.path())
                .env_clear()
                .env("LC_ALL", "C")
                .env("PATH", "/usr/bin:/bin");
            if let Some(user) = user {
                command.uid(user.id).gid(user.group);
            }
            command
        };
        let data = dir.path().join("data");
        let made = run("initdb")
            .args([
                "--username=postgres",
                "--auth=trust",
                "--no-sync",
                "--encoding=UTF8",
                "-D",
            ])
            .arg(&data)
            .output()
            .unwrap();
        assert!(
            made.status.success(),
            "{}",
            String::from_utf8_lossy(&made.stderr)
        );
        let log = fs::File::create(dir.path().join("log")).unwrap();
        let process = run("postgres")
            // No port; a test needs no disk behind it, and few connections.
            .args([
                "-c",
                "listen_addresses=",
                "-c",
                "fsync=off",
                "-c",
                "max_connections=20",
                "-c",
                "shared_buffers=8MB",
            ])
            .arg("-k")
            .arg(dir.path())
            .arg("-D")
            .arg(&data)
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        let mut database = Database { process, dir };
        database.wait_until_it_answers().await;
        Some(database)
    }

    pub(crate) async fn connect(&self) -> Client {
        self.try_connect().await.unwrap()
    }

    async fn try_connect(&self) -> Result<Client, tokio_postgres::Error> {
        let settings = format!(
            "host={} user=postgres dbname=postgres",
            self.dir.path().display()
        );
        let (client, connection) = tokio_postgres::connect(&settings, NoTls).await?;
        // Ends with its client; what goes wrong, the client hears.
        tokio::spawn(connection);
        Ok(client)
    }

    async fn wait_until_it_answers(&mut self) {
        let deadline = tokio::time::Instant::now() + PATIENCE;
        while let Err(error) = self.try_connect().await {
            let log = fs::read_to_string(self.dir.path().join("log")).unwrap_or_default();
            let ended = self.process.try_wait().unwrap();
            assert!(ended.is_none(), "PostgreSQL ended: {ended:?}\n{log}");
            assert!(tokio::time::Instant::now() < deadline, "{error}\n{log}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        // Its way of saying: at once, and clean up.
        let _ = kill_process(Pid::from_child(&self.process), Signal::QUIT);
        let _ = self.process.wait();
    }
}

/// Where the programs are: Debian keeps the servers of all versions out of the search path.
fn programs() -> Option<PathBuf> {
    let mut places: Vec<PathBuf> = fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .filter_map(|version| Some(version.ok()?.path().join("bin")))
        .collect();
    // The newest first; versions have two digits.
    places.sort();
    places.reverse();
    let path = std::env::var_os("PATH").unwrap_or_default();
    // What is on the path may be a link; the server looks for its files beside itself.
    let on_path = std::env::split_paths(&path).filter_map(|dir| {
        let initdb = fs::canonicalize(dir.join("initdb")).ok()?;
        initdb.parent().map(Path::to_owned)
    });
    places.extend(on_path);
    places
        .into_iter()
        .find(|dir| is_program(&dir.join("initdb")) && is_program(&dir.join("postgres")))
}

fn is_program(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

#[derive(Clone, Copy)]
struct User {
    id: u32,
    group: u32,
}

impl User {
    /// Another user, if we are root.
    fn to_run_as() -> Option<User> {
        let is_root = fs::metadata("/proc/self").is_ok_and(|this| this.uid() == 0);
        if !is_root {
            return None;
        }
        let users = fs::read_to_string("/etc/passwd").unwrap();
        let find = |name: &str| {
            let line = users
                .lines()
                .find(|line| line.split(':').next() == Some(name))?;
            let mut numbers = line.split(':').skip(2).map(|field| field.parse().ok());
            Some(User {
                id: numbers.next()??,
                group: numbers.next()??,
            })
        };
        let found = find("postgres").or_else(|| find("nobody"));
        Some(found.expect("a machine has a user `nobody`"))
    }
}
