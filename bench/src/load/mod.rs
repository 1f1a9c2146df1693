//! The load tool: starts peers, loads them all in the same way, and says how they compare.
//!
//! | file           | what                                                                    |
//! |----------------|-------------------------------------------------------------------------|
//! | `options.rs`   | the command line                                                        |
//! | `workloads/`   | what is measured: one file per workload                                 |
//! | `peers/`       | the servers: one file per peer, its protocol and its process            |
//! | `speaker.rs`   | what the generator needs of a protocol                                  |
//! | `stream.rs`    | a connection, plain or behind TLS                                       |
//! | `floors.rs`    | one sync of the disk, one loopback round trip                           |
//! | `generator.rs` | the load: one thread, one epoll; `pace.rs`: closed and open loops       |
//! | `rounds.rs`    | all in turns, medians, spread; `sample.rs`: one measurement             |
//! | `checker.rs`   | never two holders, fences that rise; `fairness.rs`: the order of grants |
//! | `floors.rs`    | what no cluster can be faster than: a sync, a loopback round trip       |
//! | `report/`      | tables, JSON, plots                                                     |

mod checker;
mod fairness;
mod floors;
mod generator;
mod options;
mod pace;
pub(crate) mod peers;
pub(crate) mod report;
pub(crate) mod rounds;
pub(crate) mod sample;
mod speaker;
mod stream;
pub(crate) mod workloads;

use floors::Floors;
pub(crate) use options::Options;
use peers::{Peer, PeerName};
use report::origin::Origin;
use rounds::Failure;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::process::ExitCode;
use workloads::Workload;
pub(crate) use workloads::fill_fencepost;

/// What the command line asks for, completed and checked.
pub(crate) fn check(options: Options) -> Result<Options, String> {
    let options = if options.smoke {
        options.for_smoke()
    } else {
        options.for_cluster()
    };
    options.check()?;
    if workloads_of(&options).is_empty() {
        let ways = "--hot-key, --many-keys, --handoff, ...; see --help";
        return Err(format!("say what to measure: {ways}"));
    }
    Ok(options)
}

/// Loads the peers.
pub(crate) fn run(options: &Options) -> ExitCode {
    let workloads = workloads_of(options);
    let floors = match options.cluster.map(|_| Floors::measure()).transpose() {
        Ok(floors) => floors,
        Err(error) => {
            eprintln!("bench: the floors cannot be measured: {error}");
            return ExitCode::FAILURE;
        }
    };
    let mut peers: Vec<Peer> = options.server.map(Peer::running).into_iter().collect();
    for name in options.peers() {
        match Peer::start_nodes(name, options.node_count()) {
            Ok(peer) => peers.push(peer),
            Err(why) => println!("skipped: {name}: {why}"),
        }
    }
    if peers.is_empty() {
        eprintln!("bench: no peer is left to be measured");
        return ExitCode::FAILURE;
    }
    let measured: Vec<String> = peers
        .iter()
        .map(|peer| format!("{} {}", peer.name, peer.version))
        .collect();
    println!("measured: {}", measured.join(", "));
    for &workload in &workloads {
        for peer in &peers {
            if let Some(why) = workload.leaves_out(peer.name) {
                println!("left out of {}: {}: {why}", workload.as_str(), peer.name);
            }
        }
    }
    let outcome = rounds::run(&workloads, &mut peers, options);
    let measured_names: Vec<PeerName> = peers.iter().map(|peer| peer.name).collect();
    let (fatal, others): (Vec<Failure>, Vec<Failure>) = outcome
        .failures
        .iter()
        .cloned()
        .partition(|failure| failure.fails_run(&measured_names, options));
    let mut warnings: Vec<String> = Vec::new();
    let tell = |failures, how: &str| {
        let told = rounds::told_once(failures).into_iter();
        told.map(move |failure| format!("{how}: {failure}"))
            .collect::<Vec<_>>()
    };
    warnings.extend(tell(&fatal, "FAILED"));
    warnings.extend(tell(&others, "could not be measured"));
    warnings.iter().for_each(|warning| println!("{warning}"));
    let sections = report::sections(&outcome.rows);
    for section in &sections {
        print!("{}", section.text(options.wide));
    }
    println!();
    if let Some(floors) = &floors {
        println!("{}", floors.text());
    }
    if let Some(path) = &options.json {
        let written = File::create(path).map(BufWriter::new);
        let written = written.and_then(|mut file| {
            for line in floors.iter().flat_map(Floors::lines) {
                writeln!(file, "{line}")?;
            }
            report::write_json(&outcome.rows, options, &mut file)?;
            file.flush()
        });
        match written {
            Ok(()) => println!("wrote {}", path.display()),
            Err(error) => {
                eprintln!("bench: {}: {error}", path.display());
                return ExitCode::FAILURE;
            }
        }
    }
    let origin = Origin::here();
    let plots = match report::draw_all(&outcome.rows, &options.plots, &origin) {
        Ok(plots) => plots,
        Err(why) => {
            eprintln!("bench: no plots: {why}");
            return ExitCode::FAILURE;
        }
    };
    for plot in &plots {
        println!("wrote {}", plot.path.display());
    }
    if let Some(directory) = &options.report {
        let page = report::Page {
            origin: &origin,
            command: std::env::args().collect::<Vec<_>>().join(" "),
            measured: measured.join(", "),
            warnings,
            sections: &sections,
            plots: &plots,
        };
        match page.write(directory) {
            Ok(path) => println!("wrote {}", path.display()),
            Err(why) => {
                eprintln!("bench: no report: {why}");
                return ExitCode::FAILURE;
            }
        }
    }
    match fatal.is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

fn workloads_of(options: &Options) -> Vec<Workload> {
    let all = [
        (options.hot_key, Workload::HotKey),
        (options.many_keys, Workload::ManyKeys),
        (options.handoff, Workload::Handoff),
        (options.expiry, Workload::Expiry),
        (options.renew, Workload::Renew),
    ];
    let chosen = all.into_iter().filter(|(is_chosen, _)| *is_chosen);
    chosen.map(|(_, workload)| workload).collect()
}
