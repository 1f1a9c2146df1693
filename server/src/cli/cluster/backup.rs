//! `cluster backup`: an image of the leader's ledger in a file.

use crate::cli::connect::run_async;
use crate::cli::failure::{Code, Failure, print};
use crate::cli::nodes::{Asker, NodeArgs};
use crate::cli::text::plural;
use clap::Args;
use cluster::backup::{from_hex, to_file};
use cluster::question::{Answer, Question};
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::SystemTime;

/// Write what is held now into a file, for `cluster restore`
#[derive(Args)]
#[command(after_help = "\
The file has all locks and sessions of one moment, and the key that sessions are signed with: keep it like the cluster's key. \
Three nodes with their own disks are the first protection; a backup is for the day when a majority of the disks is lost. What \
is granted or released after it was taken is not in it, so `cluster restore` begins far above every fence.

Exit codes: 0 written; 1 the leader said no; 2 the file exists, or a flag is wrong; 69 no node can be reached; 74 the file cannot \
be written; 77 the nodes have another key.")]
pub(super) struct BackupArgs {
    /// The file, which must not exist yet
    file: PathBuf,
    #[command(flatten)]
    nodes: NodeArgs,
}

pub(super) fn run(args: &BackupArgs) -> Result<ExitCode, Failure> {
    let (asker, addresses) = (args.nodes.asker()?, args.nodes.addresses()?);
    if args.file.exists() {
        return Err(Failure::usage(format_args!(
            "{} exists: give the name of a new file",
            args.file.display()
        )));
    }
    let image = run_async(fetch(&asker, &addresses))?;
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let taken_unix_ms = now.map_or(0, |since| since.as_millis() as u64);
    let bytes = to_file(&image, taken_unix_ms);
    write(&args.file, &bytes).map_err(|error| {
        let message = format_args!("cannot write {}: {error}", args.file.display());
        Failure::new(Code::Disk, message)
    })?;
    print(&format!(
        "{} has what is held now: {}\n",
        args.file.display(),
        plural(bytes.len() as u64, "byte")
    ))?;
    Ok(ExitCode::SUCCESS)
}

/// Asks the leader for an image, part by part.
async fn fetch(asker: &Asker, addresses: &[String]) -> Result<Vec<u8>, Failure> {
    let mut image = Vec::new();
    let begin = Question::Image { id: None, from: 0 };
    let (address, mut answer) = asker.ask_leader(addresses, &begin).await?;
    loop {
        let (id, bytes, part) = match answer {
            Answer::Image { id, bytes, part } => (id, bytes, part),
            Answer::Error(why) => return Err(Failure::new(Code::No, why)),
            Answer::Leader { node, .. } => {
                return Err(Failure::new(
                    Code::No,
                    format_args!("node {node} leads since a moment ago: begin again"),
                ));
            }
            other => return Err(super::unexpected(&address, &other)),
        };
        let part = from_hex(&part).filter(|part| !part.is_empty() || bytes == 0);
        let part = part.ok_or_else(|| {
            let message = format_args!("{address} sent a part of the image that cannot be read");
            Failure::new(Code::Internal, message)
        })?;
        image.extend_from_slice(&part);
        if image.len() as u64 >= bytes {
            return Ok(image);
        }
        let next = Question::Image {
            id: Some(id),
            from: image.len() as u64,
        };
        let asked = asker.ask(&address, &next).await;
        answer = asked.map_err(|silence| Failure::new(Code::Unreachable, silence))?;
    }
}

/// Under another name first, so that there is never half a backup under the right one.
fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut draft = path.as_os_str().to_owned();
    draft.push(".part");
    let mut options = OpenOptions::new();
    let mut file = options
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&draft)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    std::fs::rename(&draft, path)
}
