//! The load tool: starts peers, loads them all in the same way, and says how they compare.
//!
//! | file           | what                                                                    |
//! |----------------|-------------------------------------------------------------------------|
//! | `options.rs`   | the command line                                                        |
//! | `workloads/`   | what is measured: one file per workload                                 |
//! | `peers/`       | the servers: one file per peer, its protocol and its process            |
//! | `speaker.rs`   | what the generator needs of a protocol                                  |
//! | `generator.rs` | the load: one thread, one epoll; `pace.rs`: closed and open loops       |
//! | `rounds.rs`    | all in turns, medians, spread; `sample.rs`: one measurement             |
//! | `checker.rs`   | never two holders, fences that rise; `fairness.rs`: the order of grants |
//! | `report/`      | tables, JSON, plots                                                     |

mod checker;
mod fairness;
mod generator;
mod options;
mod pace;
pub(crate) mod peers;
pub(crate) mod report;
mod rounds;
mod sample;
mod speaker;
pub(crate) mod workloads;

pub(crate) use options::Options;
use peers::Peer;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::process::ExitCode;
use workloads::Workload;
pub(crate) use workloads::fill_fencepost;

/// Runs what the command line asks for.
pub(crate) fn run(options: Options) -> ExitCode {
    let options = &if options.smoke {
        options.for_smoke()
    } else {
        options
    };
    if let Err(why) = options.check() {
        eprintln!("bench: {why}");
        return ExitCode::from(2);
    }
    let workloads = workloads_of(options);
    if workloads.is_empty() {
        eprintln!("bench: say what to measure: --hot-key, --many-keys, --handoff, ...; see --help");
        return ExitCode::from(2);
    }
    let mut peers: Vec<Peer> = options.server.map(Peer::running).into_iter().collect();
    for name in options.peers() {
        match Peer::start(name) {
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
    let outcome = rounds::run(&workloads, &peers, options);
    report::print(&outcome.rows);
    println!();
    if let Some(path) = &options.json {
        let written = File::create(path).map(BufWriter::new);
        let written = written.and_then(|mut file| {
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
    match report::draw_all(&outcome.rows, &options.plots) {
        Ok(files) => files
            .iter()
            .for_each(|file| println!("wrote {}", file.display())),
        Err(why) => {
            eprintln!("bench: no plots: {why}");
            return ExitCode::FAILURE;
        }
    }
    for failure in &outcome.failures {
        println!("FAILED: {failure}");
    }
    if !outcome.failures.is_empty() {
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
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
