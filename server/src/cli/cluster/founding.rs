//! `cluster restore` and `cluster adopt`: the first directory of a new cluster.

use crate::cli::failure::{Code, Failure, print};
use crate::cli::text::pairs;
use clap::Args;
use cluster::founding::{ADOPTED_FILE, Founding, FoundingError, Origin, mark_adopted};
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::SystemTime;
use wal::{DirDisk, Utc, WalError};

/// Make a new cluster from a backup, or from the directory of one node when a majority is lost for
/// good
#[derive(Args)]
#[command(after_help = "\
What is lost: everything that was granted, renewed or released after the backup was taken, or that the node had not heard of. \
What is not: the order of fences. The new cluster has a new id and begins far above every fence that can have been issued. \
What is held ends with its leases; the clock goes on where it stood.

Make sure that no node of the old cluster runs any more, or two clusters grant the same locks, and give the new one a new key \
file, with which a forgotten node cannot speak to it. Then start the node, without --bootstrap, with itself in --peers, and add \
further nodes with `fencepost cluster add`.

Exit codes: 0 done; 1 it cannot be done; 2 nothing was done: a wrong flag, no --accept-loss, or a directory that is in use or \
not empty.")]
pub(super) struct RestoreArgs {
    /// The backup
    #[arg(required_unless_present = "from_dir", conflicts_with = "from_dir")]
    file: Option<PathBuf>,
    /// The directory of a node that has stopped. It is only read
    #[arg(long, value_name = "DIR")]
    from_dir: Option<PathBuf>,
    /// The directory of the new cluster's first node; it must be empty or not exist
    #[arg(long, value_name = "DIR")]
    data_dir: PathBuf,
    /// The id of that node
    #[arg(long, value_name = "ID", value_parser = clap::value_parser!(u64).range(1..))]
    node_id: u64,
    /// Accept the loss and restore. Without this the command only says what it would do
    #[arg(long)]
    accept_loss: bool,
}

/// Turn a single server's directory into the first node of a new cluster
#[derive(Args)]
#[command(after_help = "\
The server must have stopped in good order. Its locks and sessions go on, its fences rise on, and clients resume their sessions. \
The directory as it was stays beside the new one, under another name. A server refuses to start with it while the file \
adopted-by-a-cluster is in it.

Afterwards start the node, without --bootstrap, with --node-id, --durability lease and itself in --peers, and add further nodes with \
`fencepost cluster add`.

Exit codes: 0 done; 1 it cannot be done; 2 nothing was done: a wrong flag, or a directory that is in use or has no log.")]
pub(super) struct AdoptArgs {
    /// The server's data directory
    dir: PathBuf,
    /// The id of the node
    #[arg(long, value_name = "ID", default_value = "1", value_parser = clap::value_parser!(u64).range(1..))]
    node_id: u64,
}

pub(super) fn restore(args: &RestoreArgs) -> Result<ExitCode, Failure> {
    let now_unix_ms = now_unix_ms()?;
    let file = match &args.file {
        Some(path) => std::fs::read(path).map_err(|error| {
            Failure::usage(format_args!("cannot read {}: {error}", path.display()))
        })?,
        None => Vec::new(),
    };
    let (origin, what) = match (&args.from_dir, &args.file) {
        (Some(dir), _) => (Origin::Node(dir), dir),
        (None, Some(path)) => (Origin::Backup(&file), path),
        (None, None) => unreachable!("clap asks for one of them"),
    };
    let founding = Founding::read(origin, now_unix_ms).map_err(|error| cannot(what, error))?;
    let dir = args.data_dir.display();
    if !args.accept_loss {
        let told = tell(&founding, Told::Plan);
        print(&format!("With --accept-loss this would be done:\n{told}"))?;
        return Err(Failure::usage(format_args!(
            "nothing was changed: what came after {} is lost, and --accept-loss was not given",
            what.display()
        )));
    }
    let told = tell(&founding, Told::Done);
    founding
        .write(&args.data_dir, args.node_id)
        .map_err(|error| cannot(&args.data_dir, error))?;
    print(&format!(
        "{dir} is node {} of a new cluster\n{told}{}",
        args.node_id,
        next_steps(args.node_id, &args.data_dir)
    ))?;
    Ok(ExitCode::SUCCESS)
}

pub(super) fn adopt(args: &AdoptArgs) -> Result<ExitCode, Failure> {
    let now_unix_ms = now_unix_ms()?;
    let dir = &args.dir;
    let founding = Founding::read(Origin::Single(dir), now_unix_ms);
    let founding = founding.map_err(|error| cannot(dir, error))?;
    let told = tell(&founding, Told::Done);
    let mark = dir.join(ADOPTED_FILE);
    let beside = |what: &str| {
        let mut path: OsString = dir.clone().into_os_string();
        path.push(what);
        PathBuf::from(path)
    };
    let (new, old) = (
        beside(".cluster"),
        beside(&format!(".single-{now_unix_ms}")),
    );
    if new.exists() {
        return Err(Failure::usage(format_args!(
            "{} is left from an adoption that did not come to its end: remove it, {} too if it is there, and try again",
            new.display(),
            mark.display()
        )));
    }
    if mark.exists() {
        return Err(Failure::usage(format_args!(
            "{} says that a cluster has adopted this directory already. Give the directory of a server by itself; or delete \
             that file, only if no node of that cluster runs any more",
            mark.display()
        )));
    }
    founding
        .write(&new, args.node_id)
        .map_err(|error| cannot(&new, error))?;
    // First, so that there is no moment when both could serve.
    let marked = DirDisk::open(dir).and_then(|disk| mark_adopted(&disk));
    marked.map_err(|error| not_marked(&mark, &new, &error))?;
    let moved = std::fs::rename(dir, &old).and_then(|()| std::fs::rename(&new, dir));
    moved.map_err(|error| not_moved(dir, &new, &old, &error))?;
    print(&format!(
        "{} is node {} of a new cluster\n{told}kept as          {}\n{}",
        dir.display(),
        args.node_id,
        old.display(),
        next_steps(args.node_id, dir)
    ))?;
    Ok(ExitCode::SUCCESS)
}

fn not_marked(mark: &Path, new: &Path, error: &io::Error) -> Failure {
    Failure::new(
        Code::No,
        format_args!(
            "cannot write {0}: {error}. No cluster has adopted this directory. Remove {1}, and {0} if it is there, and try again",
            mark.display(),
            new.display()
        ),
    )
}

fn not_moved(dir: &Path, new: &Path, old: &Path, error: &io::Error) -> Failure {
    Failure::new(
        Code::No,
        format_args!(
            "the directory of the node is ready in {}, but cannot take the place of {}: {error}. Move {} to {} and {0} to {1} \
             yourself",
            new.display(),
            dir.display(),
            dir.display(),
            old.display()
        ),
    )
}

fn now_unix_ms() -> Result<u64, Failure> {
    let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let since_1970 = since_1970.map_err(|_| {
        Failure::usage("the clock of this machine shows a time before 1970; set it first")
    })?;
    Ok(since_1970.as_millis() as u64)
}

/// What is told of.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Told {
    /// What would be done. The id is drawn, and the fences counted from the clock, when it is done.
    Plan,
    Done,
}

/// What the new cluster begins with.
fn tell(founding: &Founding, told: Told) -> String {
    let (cluster, at_least) = match told {
        Told::Plan => ("a new id".to_owned(), " or higher"),
        Told::Done => (format!("{:032x}", founding.cluster_id), ""),
    };
    let mut lines = vec![("cluster", cluster)];
    if founding.cluster_id_before != 0 {
        lines.push(("made from", format!("{:032x}", founding.cluster_id_before)));
    }
    if let Some(taken_unix_ms) = founding.taken_unix_ms {
        lines.push(("backup taken", Utc(taken_unix_ms).to_string()));
    }
    lines.push(("cluster's clock", Utc(founding.clock_ms).to_string()));
    lines.push(("locks", founding.locks.to_string()));
    lines.push(("sessions", founding.sessions.to_string()));
    lines.push(("highest fence", founding.fence_found.to_string()));
    lines.push(("next fence", format!("above {}{at_least}", founding.floor)));
    pairs(&lines)
}

fn next_steps(node: u64, dir: &Path) -> String {
    format!(
        "\nStart it, with the address where other nodes will reach it, and add the others to it:\n  \
         fencepost serve --node-id {node} --peers {node}=HOST:7500 --durability lease --cluster-key-file FILE --data-dir {}\n  \
         fencepost cluster add ID=HOST:7500 --node HOST:7500 --cluster-key-file FILE\n",
        dir.display()
    )
}

fn cannot(what: &Path, error: FoundingError) -> Failure {
    let code = match &error {
        FoundingError::Log(WalError::Locked { .. }) => {
            return Failure::usage(format_args!(
                "{} is in use: stop its server first",
                what.display()
            ));
        }
        FoundingError::Log(error) if error.is_for_want_of_room() => Code::Disk,
        FoundingError::Nothing(_) | FoundingError::NotEmpty(_) => Code::Usage,
        _ => Code::No,
    };
    Failure::new(code, error)
}
