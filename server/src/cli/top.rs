//! `fencepost top`: the server at a glance, in a terminal.
//!
//! It asks over the native protocol, as the other commands do, a bounded amount every second
//! (`sample.rs`), keeps what changed in between (`model.rs`) and draws it (`draw.rs`). The terminal
//! is given back as it was however it ends: by a key, by a signal, by a panic, or because the
//! server has gone.

mod draw;
mod model;
mod sample;
#[cfg(test)]
mod tests;

use super::connect::{ServerArgs, run_async};
use super::failure::{Code, Failure, print};
use super::text::{escaped, time};
use clap::Args;
use fencepost::{Client, ForceRelease};
use model::{Command, Model, Victim};
use ratatui::DefaultTerminal;
use ratatui::buffer::Buffer;
use ratatui::crossterm::event::{self, Event, KeyEvent, KeyEventKind};
use ratatui::layout::Rect;
use sample::Sample;
use server::config::parse_time;
use std::io::IsTerminal;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;

/// How long a keystroke may go unnoticed by the thread that reads them when it is to end.
const KEY_POLL: Duration = Duration::from_millis(100);

/// How many keystrokes may wait. Further ones are lost: an operator types slower.
const KEYS_MAX: usize = 64;

/// The size of the frame that `--once` prints.
const ONCE_COLUMNS: u16 = 120;
const ONCE_ROWS: u16 = 50;

/// Watch a server: locks, waiters, sessions, rates and times, in a terminal
#[derive(Args)]
#[command(after_help = "\
Keys: Tab locks, prefixes, sessions; Up, Down, PgUp, PgDn, Home, End move; s sorts by the next column, r the other way \
round; / filters (locks: what keys begin with, asked of the server; sessions: a part of the name); f takes the selected \
lock away from its holder, after a confirmation and if your token may; q or Esc quits.

A server that does not answer for --timeout is given up, with exit code 69.

At most a thousand locks and a thousand sessions are asked for at a time; / narrows them down.")]
pub(super) struct TopArgs {
    /// Show only keys that begin with this
    #[arg(default_value = "", hide_default_value = true)]
    prefix: String,
    /// How often to look
    #[arg(long, value_name = "TIME", value_parser = parse_interval, default_value = "1s")]
    every: Duration,
    /// Print one frame as text and exit. Rates are then those since the server's start
    #[arg(long)]
    once: bool,
    #[command(flatten)]
    server: ServerArgs,
}

fn parse_interval(text: &str) -> Result<Duration, String> {
    let every = parse_time(text)?;
    match every >= Duration::from_millis(100) && every <= Duration::from_secs(60) {
        true => Ok(every),
        false => Err("from 100ms to 60s are allowed".to_owned()),
    }
}

pub(super) fn run(args: &TopArgs) -> Result<ExitCode, Failure> {
    if args.server.json {
        return Err(Failure::usage(
            "top prints no JSON; `stats`, `list` and `sessions` do with --json",
        ));
    }
    if args.once {
        return once(args);
    }
    if !std::io::stdout().is_terminal() || !std::io::stdin().is_terminal() {
        return Err(Failure::usage(
            "top needs a terminal; --once prints one frame as text",
        ));
    }
    run_async(watch(args)).map(|()| ExitCode::SUCCESS)
}

fn once(args: &TopArgs) -> Result<ExitCode, Failure> {
    let prefix = args.prefix.as_bytes();
    let sample = args
        .server
        .ask(async |client| Sample::take(client, prefix).await)?;
    let mut model = Model::new(args.server.server.clone(), args.prefix.clone());
    model.update(sample);
    print(&frame(&mut model, ONCE_COLUMNS, ONCE_ROWS))?;
    Ok(ExitCode::SUCCESS)
}

/// One frame as text, without the lines at the end that have nothing.
fn frame(model: &mut Model, columns: u16, rows: u16) -> String {
    let area = Rect::new(0, 0, columns, rows);
    let mut buffer = Buffer::empty(area);
    draw::draw(model, area, &mut buffer);
    let line = |row: u16| -> String {
        let cells = (0..columns).map(|column| buffer[(column, row)].symbol());
        let line: String = cells.collect();
        line.trim_end().to_owned()
    };
    let mut lines: Vec<String> = (0..rows).map(line).collect();
    while lines.last().is_some_and(String::is_empty) {
        lines.pop();
    }
    lines.push(String::new());
    lines.join("\n")
}

/// The terminal, as it has to be given back.
struct Screen {
    terminal: DefaultTerminal,
}

impl Screen {
    /// Takes the terminal. A panic gives it back before it is reported.
    fn take() -> Result<Screen, Failure> {
        let terminal = ratatui::try_init().map_err(|error| {
            ratatui::restore();
            Failure::new(
                Code::Internal,
                format_args!("the terminal cannot be used: {error}"),
            )
        })?;
        Ok(Screen { terminal })
    }

    fn show(&mut self, model: &mut Model) -> Result<(), Failure> {
        let drawn = self.terminal.draw(|frame| {
            let area = frame.area();
            draw::draw(model, area, frame.buffer_mut());
        });
        drawn.map(|_| ()).map_err(|error| {
            Failure::new(
                Code::Internal,
                format_args!("the terminal cannot be drawn on: {error}"),
            )
        })
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

/// The thread that reads keystrokes. Dropping it ends it within a moment.
struct Keys {
    keys: mpsc::Receiver<Event>,
    is_over: Arc<AtomicBool>,
}

impl Keys {
    fn read() -> Self {
        let (send, keys) = mpsc::channel(KEYS_MAX);
        let is_over = Arc::new(AtomicBool::new(false));
        let over = is_over.clone();
        std::thread::spawn(move || {
            while !over.load(Ordering::Relaxed) {
                match event::poll(KEY_POLL) {
                    Ok(false) => {}
                    Ok(true) => match event::read() {
                        Ok(event) => _ = send.try_send(event),
                        Err(_) => return,
                    },
                    // The terminal is gone; the channel closes.
                    Err(_) => return,
                }
            }
        });
        Keys { keys, is_over }
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

/// Any of the signals that end a program.
struct Ends([Signal; 3]);

impl Ends {
    fn new() -> Result<Self, Failure> {
        let new = |kind| {
            signal(kind).map_err(|error| {
                Failure::new(
                    Code::Internal,
                    format_args!("the system refused a signal handler: {error}"),
                )
            })
        };
        Ok(Ends([
            new(SignalKind::terminate())?,
            new(SignalKind::interrupt())?,
            new(SignalKind::hangup())?,
        ]))
    }

    /// May be dropped half-way.
    async fn any(&mut self) {
        let [terminate, interrupt, hangup] = &mut self.0;
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
            _ = hangup.recv() => {}
        }
    }
}

async fn watch(args: &TopArgs) -> Result<(), Failure> {
    let client = args
        .server
        .connect("fencepost", None, args.server.timeout)
        .await?;
    let mut model = Model::new(args.server.server.clone(), args.prefix.clone());
    let mut ends = Ends::new()?;
    // The sentence of a failure is for the terminal that has been given back.
    let watched = {
        let mut screen = Screen::take()?;
        let mut keys = Keys::read();
        watch_on(args, &client, &mut model, &mut screen, &mut keys, &mut ends).await
    };
    let _ = tokio::time::timeout(Duration::from_secs(1), client.close()).await;
    watched
}

async fn watch_on(
    args: &TopArgs,
    client: &Client,
    model: &mut Model,
    screen: &mut Screen,
    keys: &mut Keys,
    ends: &mut Ends,
) -> Result<(), Failure> {
    let mut ticks = tokio::time::interval(args.every);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut answered = Instant::now();
    loop {
        screen.show(model)?;
        let command = tokio::select! {
            biased;
            () = ends.any() => return Ok(()),
            event = keys.keys.recv() => match event {
                Some(Event::Key(key)) if key.kind == KeyEventKind::Press => model.press(&key),
                // Another size: the next frame has it.
                Some(_) => Command::Nothing,
                None => return Ok(()),
            },
            _ = ticks.tick() => Command::Look,
        };
        match command {
            Command::Nothing => {}
            Command::Quit => return Ok(()),
            Command::Look => {
                // A look that takes long must not keep a signal or `q` waiting.
                let prefix = model.prefix().as_bytes().to_vec();
                let looked = tokio::select! {
                    biased;
                    () = ends.any() => return Ok(()),
                    () = quits(keys) => return Ok(()),
                    looked = Sample::take(client, &prefix) => looked,
                };
                match looked {
                    Ok(sample) => {
                        answered = Instant::now();
                        model.update(sample);
                    }
                    // As long as one request may take: by then it has been asked several times.
                    Err(error) if answered.elapsed() >= args.server.timeout => {
                        return Err(args.server.failure_of(error));
                    }
                    Err(error) => {
                        let message = args.server.failure_of(error).message;
                        model.complain(format!(
                            "{message} (no answer for {})",
                            time(answered.elapsed())
                        ));
                    }
                }
            }
            Command::Force(victim) => {
                let said = force(client, &victim, args).await;
                model.say(said);
                ticks.reset_immediately();
            }
        }
    }
}

/// Waits for the key that quits; drops others.
async fn quits(keys: &mut Keys) {
    loop {
        match keys.keys.recv().await {
            Some(Event::Key(key)) if is_quit(&key) => return,
            Some(_) => {}
            None => return,
        }
    }
}

fn is_quit(key: &KeyEvent) -> bool {
    key.kind == KeyEventKind::Press && model::is_quit(key)
}

/// Takes a lock away and says what came of it.
async fn force(client: &Client, victim: &Victim, args: &TopArgs) -> String {
    let key = escaped(&victim.key);
    let fence = victim.fence;
    match client.force_release(&victim.key, fence).await {
        Ok(ForceRelease::Released) => format!("{key} is released from fence {fence}"),
        Ok(ForceRelease::NotHeld(reason)) => {
            format!("no session holds {key} under fence {fence} any more ({reason})")
        }
        Err(error) => args.server.failure_of(error).message,
    }
}
