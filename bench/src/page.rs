//! `bench page`: does the operator's page stay usable while ten million locks are held?
//!
//! Unit: milliseconds from a request to the last byte of its answer, over HTTP on this machine, one
//! request at a time; and kilobytes of the largest answer. Then what a lock costs at the same time:
//! microseconds of an acquire, while the page is not asked and while it is asked without a pause
//! for a prefix that no key has, which is the most that it can do. A browser, and the network to
//! it, are left out.
//!
//! The run fails if an answer has more entries than were asked for, or more bytes than an entry may
//! have.

use crate::frames::Line;
use crate::http;
use crate::load::fill_fencepost;
use crate::load::report::origin::Origin;
use crate::progress::Progress;
use clap::Args;
use hdrhistogram::Histogram;
use protocol::{Acquire, Fence, Key, Lease, Reply, Request};
use serde_json::Value;
use std::io;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Ask for what the operator's page asks for while many locks are held.
#[derive(Args)]
pub(crate) struct Arguments {
    /// Locks that are held.
    #[arg(long, default_value_t = 10_000_000)]
    keys: u64,
    /// Sessions that hold nothing, beside those that hold the locks.
    #[arg(long, default_value_t = 20_000)]
    sessions: u32,
    /// How often each request is asked.
    #[arg(long, default_value_t = 50)]
    rounds: u32,
    /// How long an acquire is measured, with and without the page.
    #[arg(long, default_value = "5s", value_parser = humantime::parse_duration)]
    beside: Duration,
}

/// No request may take longer; nothing is said about how much sooner it should end.
const PATIENCE: Duration = Duration::from_secs(60);

/// The lease of everything that is held here, and the life of the sessions.
const HOUR_MS: u32 = 3_600_000;

/// Keys that acquires are refused for, and how often each, so that there are contended ones.
const CONTENDED: u64 = 100;
const REFUSALS: u32 = 20;

/// What an entry of a list may take, with the short keys of this bench.
const ENTRY_BYTES_MAX: usize = 1024;

/// What any other answer may take.
const ANSWER_BYTES_MAX: usize = 256 * 1024;

/// How many requests one search may take before it is given up.
const PAGES_MAX: u32 = 100_000;

/// The one key with this prefix.
const RARE: &[u8] = b"rare/1";

/// The parts of a run, for the bar.
const STEPS: u64 = 13;

pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    match measure(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench: {error}");
            ExitCode::FAILURE
        }
    }
}

fn measure(arguments: &Arguments) -> io::Result<()> {
    let progress = Progress::new(STEPS);
    let directory = TempDir::with_prefix("fencepost-bench-")?;
    let server = server::Server::builder()
        .http(SocketAddr::from(([127, 0, 0, 1], 0)))
        .with(|config| config.data_dir = directory.path().to_owned());
    let server = server.start().map_err(io::Error::other)?;
    let address = server.local_addr();
    progress.begin(format!("{} locks", arguments.keys));
    let begun = Instant::now();
    fill_fencepost(address, arguments.keys).map_err(io::Error::other)?;
    let filled_in = begun.elapsed();
    progress.step();
    progress.begin(format!("{} sessions", arguments.sessions));
    let mut holder = crowd(address, arguments.sessions)?;
    progress.step();

    progress.print(|| {
        println!("{}", Origin::here().line());
        println!(
            "{} locks, taken in {:.1} s; {} sessions\n",
            arguments.keys,
            filled_in.as_secs_f64(),
            arguments.sessions
        );
        println!(
            "{:44}{:>10}{:>12}{:>12}{:>12}",
            "", "requests", "median ms", "longest ms", "largest KB"
        );
    });
    let page = Page {
        address: server.http_addr().expect("it was asked for"),
        rounds: arguments.rounds,
        progress: &progress,
    };
    page.ask("locks: the first page of 100", "/locks?limit=100", 100)?;
    page.turn("locks: pages of 1000, one after the other")?;
    page.ask("locks: one, by its key", "/locks/?key=rare%2F1", 1)?;
    page.search(
        "locks: the one key with a prefix",
        "/locks?prefix=rare%2F",
        1,
    )?;
    page.search("locks: a prefix that no key has", NO_KEY, 0)?;
    page.ask("contended", "/contended", 20)?;
    page.ask(
        "sessions: the first page of 100",
        "/sessions?limit=100",
        100,
    )?;
    let no_client = "/sessions?name=no-such-client";
    page.search("sessions: a name that no client has", no_client, 0)?;
    page.ask("numbers (every second)", "/stats", 0)?;
    page.ask("metrics", "/metrics", 0)?;

    progress.print(|| {
        println!(
            "\n{:44}{:>10}{:>12}{:>12}",
            "an acquire", "acquires", "p50 us", "p99 us"
        );
    });
    for is_asked in [false, true] {
        progress.begin("an acquire beside the page");
        let (acquires, probes) = page.beside(&mut holder, arguments.beside, is_asked)?;
        progress.print(|| {
            let what = match is_asked {
                false => "while the page is not asked",
                true => "while it searches without a pause",
            };
            let us = |quantile| acquires.value_at_quantile(quantile) as f64 / 1_000.0;
            println!(
                "{what:44}{:>10}{:>12.1}{:>12.1}",
                acquires.len(),
                us(0.5),
                us(0.99)
            );
            if is_asked {
                println!(
                    "{:44}{:>10}{:>12.1}{:>12.1}",
                    "/healthz meanwhile",
                    probes.len(),
                    probes.value_at_quantile(0.5) as f64,
                    probes.value_at_quantile(0.99) as f64
                );
            }
        });
        progress.step();
    }
    server.shutdown();
    Ok(())
}

/// A search that ends with the table.
const NO_KEY: &str = "/locks?prefix=no-such-prefix%2F";

/// Opens sessions and leaves them, has some keys contended, and takes the rare one.
fn crowd(address: SocketAddr, sessions: u32) -> io::Result<Line> {
    for number in 0..sessions {
        Line::open(address, &format!("client-{number}"), HOUR_MS)?;
    }
    let mut holder = Line::open(address, "holder", HOUR_MS)?;
    let mut other = Line::open(address, "other", HOUR_MS)?;
    take(&mut holder, RARE)?.ok_or_else(|| io::Error::other("the rare key is held"))?;
    for number in 0..CONTENDED {
        let key = format!("contended/{number}");
        take(&mut holder, key.as_bytes())?;
        for _ in 0..REFUSALS {
            take(&mut other, key.as_bytes())?;
        }
    }
    Ok(holder)
}

/// Takes a lock, if it is free.
fn take(line: &mut Line, key: &[u8]) -> io::Result<Option<Fence>> {
    let key = Key::new(key).expect("a short key");
    let acquire = Acquire::exclusive(key, Lease::Ttl { ttl_ms: HOUR_MS });
    line.ask(&Request::Acquire(acquire), |reply| match reply {
        Reply::Granted { fence, .. } => Some(fence),
        _ => None,
    })
}

/// The page of one server.
struct Page<'a> {
    address: SocketAddr,
    rounds: u32,
    progress: &'a Progress,
}

/// How long requests of one kind took, and how large their answers were.
struct Times {
    us: Histogram<u64>,
    bytes_max: usize,
}

impl Times {
    fn new() -> Self {
        Times {
            us: histogram(),
            bytes_max: 0,
        }
    }
}

/// Of anything that ends within [`PATIENCE`].
fn histogram() -> Histogram<u64> {
    Histogram::new_with_max(PATIENCE.as_nanos() as u64, 3).expect("within bounds")
}

/// What an answer says, as far as it is checked.
struct Told {
    entries: usize,
    next: Option<String>,
}

impl Page<'_> {
    /// Asks the same again and again.
    fn ask(&self, what: &str, path: &str, entries_max: usize) -> io::Result<()> {
        self.progress.begin(what);
        let mut times = Times::new();
        for _ in 0..self.rounds {
            self.ask_once(path, entries_max, &mut times)?;
        }
        self.tell(what, &times);
        Ok(())
    }

    /// Goes from page to page through the whole table, as far as the rounds reach.
    fn turn(&self, what: &str) -> io::Result<()> {
        self.progress.begin(what);
        let mut times = Times::new();
        let mut path = "/locks?limit=1000".to_owned();
        for _ in 0..self.rounds {
            let told = self.ask_once(&path, 1000, &mut times)?;
            let Some(next) = told.next else { break };
            path = format!("/locks?limit=1000&cursor={next}");
        }
        self.tell(what, &times);
        Ok(())
    }

    /// Searches to the end, which may take several requests. `found`: so many entries there are.
    fn search(&self, what: &str, path: &str, found: usize) -> io::Result<()> {
        self.progress.begin(what);
        let mut times = Times::new();
        let mut next = String::new();
        let mut seen = 0;
        for _ in 0..PAGES_MAX {
            let told = self.ask_once(&format!("{path}&cursor={next}"), 100, &mut times)?;
            seen += told.entries;
            match told.next {
                Some(cursor) => next = cursor,
                None => {
                    self.tell(what, &times);
                    return match seen == found {
                        true => Ok(()),
                        false => Err(io::Error::other(format!("{path}: {seen} were found"))),
                    };
                }
            }
        }
        Err(io::Error::other(format!("{path} has no end")))
    }

    fn ask_once(&self, path: &str, entries_max: usize, times: &mut Times) -> io::Result<Told> {
        let begun = Instant::now();
        let answer = http::ask(self.address, "GET", path, &[], "", PATIENCE)?;
        times
            .us
            .saturating_record(begun.elapsed().as_micros() as u64);
        let bytes = answer.body.len();
        times.bytes_max = times.bytes_max.max(bytes);
        let told = told(&answer.body);
        let bytes_max = ANSWER_BYTES_MAX.max(told.entries * ENTRY_BYTES_MAX);
        if answer.status != 200 || told.entries > entries_max.max(1) || bytes > bytes_max {
            return Err(io::Error::other(format!(
                "{path}: status {}, {} entries, {bytes} bytes",
                answer.status, told.entries
            )));
        }
        Ok(told)
    }

    fn tell(&self, what: &str, times: &Times) {
        let ms = |us: u64| us as f64 / 1_000.0;
        self.progress.print(|| {
            println!(
                "{what:44}{:>10}{:>12.2}{:>12.2}{:>12.1}",
                times.us.len(),
                ms(times.us.value_at_quantile(0.5)),
                ms(times.us.max()),
                times.bytes_max as f64 / 1_024.0
            );
        });
        self.progress.step();
    }

    /// How long acquires take, in nanoseconds, and meanwhile a health probe, in microseconds.
    fn beside(
        &self,
        line: &mut Line,
        span: Duration,
        is_asked: bool,
    ) -> io::Result<(Histogram<u64>, Histogram<u64>)> {
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let probes = scope.spawn(|| -> io::Result<Histogram<u64>> {
                let mut probes = histogram();
                while is_asked && !is_over.load(Ordering::Relaxed) {
                    let begun = Instant::now();
                    http::ask(self.address, "GET", "/healthz", &[], "", PATIENCE)?;
                    probes.saturating_record(begun.elapsed().as_micros() as u64);
                    std::thread::sleep(PROBE_PAUSE);
                }
                Ok(probes)
            });
            let searches = scope.spawn(|| -> io::Result<()> {
                while is_asked && !is_over.load(Ordering::Relaxed) {
                    http::ask(self.address, "GET", NO_KEY, &[], "", PATIENCE)?;
                }
                Ok(())
            });
            let acquires = cycle(line, span);
            is_over.store(true, Ordering::Relaxed);
            searches.join().expect("it does not panic")?;
            let probes = probes.join().expect("it does not panic")?;
            Ok((acquires?, probes))
        })
    }
}

/// Between two health probes.
const PROBE_PAUSE: Duration = Duration::from_millis(20);

/// Takes a lock and gives it back, one request at a time, and counts what the taking took.
fn cycle(line: &mut Line, span: Duration) -> io::Result<Histogram<u64>> {
    let mut acquires = histogram();
    let key = Key::new(b"probe").expect("a short key");
    let until = Instant::now() + span;
    while Instant::now() < until {
        let begun = Instant::now();
        let taken = take(line, key.as_bytes())?;
        acquires.saturating_record(begun.elapsed().as_nanos() as u64);
        let fence = taken.ok_or_else(|| io::Error::other("the probe's key is held"))?;
        line.ask(&Request::Release { key, fence }, |_| ())?;
    }
    Ok(acquires)
}

/// How many entries an answer has, and where it goes on.
fn told(body: &str) -> Told {
    let value: Value = serde_json::from_str(body).unwrap_or_default();
    let lists = ["locks", "sessions", "keys"];
    let list = lists.iter().find_map(|name| value[name].as_array());
    Told {
        entries: list.map_or(0, Vec::len),
        next: value["next"].as_str().map(str::to_owned),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_tells_its_entries_and_where_it_goes_on() {
        let page = told(r#"{"locks":[{},{}],"next":"7"}"#);
        assert_eq!((page.entries, page.next.as_deref()), (2, Some("7")));
        let last = told(r#"{"sessions":[],"next":null}"#);
        assert_eq!((last.entries, last.next), (0, None));
        assert_eq!(told("fencepost_up 1").entries, 0);
    }
}
