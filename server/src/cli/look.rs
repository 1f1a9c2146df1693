//! The commands that look at a server, and `release`.

use super::connect::ServerArgs;
use super::failure::{Code, Failure, complain, print};
use super::text::{escaped, pairs, plural, time};
use super::view::{self, Key, Lock, Session, to_line};
use clap::Args;
use fencepost::{ForceRelease, LockHandle, Loss, Release, Stat};
use protocol::Fence;
use serde::{Serialize, Serializer};
use serde_json::json;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;

/// Show who holds a key, for how long, and how many wait for it
#[derive(Args)]
pub(super) struct QueryArgs {
    /// The key
    key: OsString,
    #[command(flatten)]
    server: ServerArgs,
}

/// List the keys that are held or waited for
#[derive(Args)]
pub(super) struct ListArgs {
    /// What the keys begin with. Without it all are listed
    #[arg(default_value = "", hide_default_value = true)]
    prefix: OsString,
    #[command(flatten)]
    server: ServerArgs,
}

/// List the sessions: every client with what it holds and waits for
#[derive(Args)]
pub(super) struct SessionsArgs {
    #[command(flatten)]
    server: ServerArgs,
}

/// Show the server's counters
#[derive(Args)]
pub(super) struct StatsArgs {
    #[command(flatten)]
    server: ServerArgs,
}

/// Release a detached lock, or with --force take any lock away from its holder. The holder is told
#[derive(Args)]
#[command(after_help = "\
`fencepost lock --detach` prints the fence of the lock it takes.

With --force: the holder may still be at work. Fences protect only a resource that checks them. `fencepost query KEY` \
shows the fence. Naming it makes sure that you do not take the lock from a later holder.")]
pub(super) struct ReleaseArgs {
    /// The key
    key: OsString,
    /// The fence of the grant that is to end
    #[arg(long, value_name = "N", value_parser = parse_fence)]
    fence: Fence,
    /// Takes the lock away from its holder. Without this only a detached lock is released
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    server: ServerArgs,
}

/// Ask the server for a sign of life, and how long it takes
#[derive(Args)]
pub(super) struct PingArgs {
    #[command(flatten)]
    server: ServerArgs,
}

pub(super) fn query(args: &QueryArgs) -> Result<ExitCode, Failure> {
    let key = args.key.as_bytes();
    let state = args.server.ask(async |client| client.query(key).await)?;
    let lock = Lock::new(key, state);
    show(args.server.json, &lock, || lock.to_text())
}

pub(super) fn list(args: &ListArgs) -> Result<ExitCode, Failure> {
    let prefix = args.prefix.as_bytes();
    let (locks, recovering) = args.server.ask(async |client| {
        let mut pages = client.list(prefix);
        let mut locks = Vec::new();
        while let Some(page) = pages.next().await? {
            locks.extend(page);
        }
        Ok((locks, pages.recovering()))
    })?;
    let mut locks: Vec<Lock> = locks.into_iter().map(Lock::from).collect();
    // The server lists its table in an order of its own.
    locks.sort_by(|one, other| one.key.cmp(&other.key));
    if let Some(left) = recovering {
        // On standard error, so that standard output stays a list of locks in both forms.
        complain(&format!(
            "the server is {}. What is not listed may be held",
            view::recovering(left)
        ));
    }
    show(args.server.json, &locks, || match &locks[..] {
        [] if recovering.is_some() => String::new(),
        [] => "nothing is held\n".to_owned(),
        locks => Lock::table(locks),
    })
}

pub(super) fn sessions(args: &SessionsArgs) -> Result<ExitCode, Failure> {
    let sessions = args
        .server
        .ask(async |client| client.sessions().all().await)?;
    let mut sessions: Vec<Session> = sessions.into_iter().map(Session::from).collect();
    sessions.sort_by_key(|session| std::cmp::Reverse(session.age_ms));
    show(args.server.json, &sessions, || {
        let count = plural(sessions.len() as u64, "session");
        format!("{}{count}, this one included\n", Session::table(&sessions))
    })
}

pub(super) fn stats(args: &StatsArgs) -> Result<ExitCode, Failure> {
    let stats = args.server.ask(async |client| client.stats().await)?;
    show(args.server.json, &Numbers(&stats), || {
        let width = stats.iter().map(|stat| stat.value.to_string().len()).max();
        let width = width.unwrap_or(0);
        let lines = stats
            .iter()
            .map(|stat| (stat.name.as_str(), format!("{:>width$}", stat.value)));
        pairs(&lines.collect::<Vec<_>>())
    })
}

/// The JSON of `stats`: one object, in the server's order.
struct Numbers<'a>(&'a [Stat]);

impl Serialize for Numbers<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|stat| (&stat.name, stat.value)))
    }
}

pub(super) fn release(args: &ReleaseArgs) -> Result<ExitCode, Failure> {
    let key = args.key.as_bytes();
    let fence = args.fence;
    // `None`: it is released.
    let reason = args.server.ask(async |client| match args.force {
        true => client
            .force_release(key, fence)
            .await
            .map(|released| match released {
                ForceRelease::Released => None,
                ForceRelease::NotHeld(reason) => Some(reason.to_string()),
            }),
        false => {
            let handle = LockHandle {
                key: key.to_vec(),
                fence,
            };
            let released = client.release_detached(&handle).await;
            released.map(|released| match released {
                Release::Released => None,
                Release::AlreadyLost(loss) => Some(not_released(loss).to_owned()),
            })
        }
    })?;
    let json = Released {
        key: Key::new(key),
        fence: fence.get(),
        released: reason.is_none(),
        reason: reason.clone(),
    };
    match reason {
        None => show(args.server.json, &json, || {
            format!("{} is released from fence {fence}\n", escaped(key))
        }),
        Some(_) if args.server.json => {
            print(&to_line(&json))?;
            Ok(ExitCode::from(Code::No as u8))
        }
        Some(reason) => {
            let key = escaped(key);
            let holder = match args.force {
                true => "no session holds",
                false => "there is no detached lock on",
            };
            let advice = match args.force {
                true => "`fencepost query` shows who holds it now",
                false => {
                    "`fencepost query` shows who holds it now, and --force takes it away from its holder"
                }
            };
            let sentence = format_args!("{holder} {key} under fence {fence} ({reason}); {advice}");
            Err(Failure::new(Code::No, sentence))
        }
    }
}

/// Why nothing was released.
fn not_released(loss: Loss) -> &'static str {
    match loss {
        Loss::Expired => "expired",
        Loss::Forced => "forced",
        _ => "not_held",
    }
}

/// The JSON of `release`.
#[derive(Serialize)]
struct Released {
    #[serde(flatten)]
    key: Key,
    fence: u64,
    released: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

pub(super) fn ping(args: &PingArgs) -> Result<ExitCode, Failure> {
    let round_trip = args.server.ask(async |client| client.ping().await)?;
    let address = &args.server.server;
    show(
        args.server.json,
        &json!({ "server": address, "round_trip_us": round_trip.as_micros() as u64 }),
        || {
            let round_trip = match round_trip.as_micros() {
                us @ 0..10_000 => format!("{us}us"),
                _ => time(round_trip),
            };
            format!("{address} answered in {round_trip}\n")
        },
    )
}

fn parse_fence(text: &str) -> Result<Fence, String> {
    let fence = text.parse::<Fence>();
    fence.map_err(|_| format!("{text:?} is no fence, fences are whole numbers from 1"))
}

fn show(
    is_json: bool,
    json: &impl Serialize,
    to_text: impl FnOnce() -> String,
) -> Result<ExitCode, Failure> {
    let text = if is_json { to_line(json) } else { to_text() };
    print(&text)?;
    Ok(ExitCode::SUCCESS)
}
