//! From a command to the function that carries it out: is there such a command, may this client
//! send it now, what are its keys. Transactions are queued and executed here, because they are
//! about commands and not about keys.

use super::client::{
    Blocked, Client, QUEUED_ARGUMENT_BYTES, QUEUED_BYTES_MAX, QUEUED_MAX, Transaction,
};
use super::command::{self, Call, Command, When};
use super::name::{self, Name};
use super::naming::{Args, Naming};
use super::permission;
use super::plan::Plan;
use super::port::Port;
use super::refusal::Refusal;
use super::section::{Keyspace, Section};
use super::slot;
use super::topology::Topology;
use crate::conn::connection::Connection;
use crate::conn::dialect::{Decided, Dialect};
use crate::conn::places::{Place, Stranger};
use crate::core::Core;
use crate::core::cluster_view::ClusterView;
use crate::observe::notices::Notice;
use bytes::BytesMut;
use engine::{Key, Seat, Tick};
use protocol::resp::{ProtocolError, Reader, Version, Writer, first_arguments, limits};
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use tokio::time::Instant;

/// What a client hears for which there is no place, in Redis's words.
const NO_PLACE: &str = "ERR max number of clients reached";

/// Less than this is one command or two.
const WARM_BYTES_MIN: usize = 128;

/// One client's conversation.
pub(crate) struct Talk {
    core: Rc<Core>,
    port: Arc<Port>,
    connection: Rc<Connection>,
    client: Client,
    /// The command that the client sent last. It often sends the same one again.
    last_command: Cell<Option<&'static Command>>,
    standing: Standing,
    reader: Reader,
}

/// Whether a client has introduced itself.
enum Standing {
    Stranger(Stranger),
    /// It has, and keeps its place until the connection is closed.
    Introduced {
        _place: Place,
    },
}

impl Standing {
    fn stranger(&self) -> Option<&Stranger> {
        match self {
            Standing::Stranger(stranger) => Some(stranger),
            Standing::Introduced { .. } => None,
        }
    }

    /// Gives a stranger its place once it needs no token or has shown one. `false`: there is no
    /// place for it.
    #[inline]
    fn admit(&mut self, core: &Core, client: &Client) -> bool {
        match self {
            Standing::Stranger(_) if client.is_authenticated => self.introduce(core),
            _ => true,
        }
    }

    #[cold]
    fn introduce(&mut self, core: &Core) -> bool {
        let shared = &core.shared;
        if let Some(place) = shared.places.take(false) {
            *self = Standing::Introduced { _place: place };
            return true;
        }
        core.metrics().busy_connections.bump();
        shared.notices.say(Notice::NoPlace, |unsaid| {
            let connections_max = shared.config.connections_max;
            tracing::info!(
                unsaid,
                "a client of Redis was refused: there are {connections_max} connections already"
            );
        });
        false
    }
}

/// Where a command is carried out.
struct Stage<'a> {
    core: &'a Core,
    port: &'a Port,
    connection: &'a Rc<Connection>,
    last_command: &'a Cell<Option<&'static Command>>,
    now: Tick,
}

impl Talk {
    pub(crate) fn new(
        core: Rc<Core>,
        port: Arc<Port>,
        connection: Rc<Connection>,
        client: Client,
        stranger: Stranger,
    ) -> Self {
        Talk {
            core,
            port,
            connection,
            client,
            last_command: Cell::new(None),
            standing: Standing::Stranger(stranger),
            reader: Reader::new(),
        }
    }

    fn leave_lines(&mut self) {
        let id = self.connection.id;
        self.with_lists(|section, names| command::give_up_waiting(section, names, id));
    }

    /// Calls `act` with the lists that this client waits for, if it waits for any.
    fn with_lists<T: Default>(
        &self,
        act: impl FnOnce(&mut Section<'_>, &[Name<'static>]) -> Result<T, Refusal>,
    ) -> T {
        let Some(Blocked::Lists { names, .. }) = &self.client.blocked else {
            return T::default();
        };
        let shared = &self.core.shared;
        let mut seat = self.connection.seat.borrow_mut();
        let now = shared.clock.now();
        let mut keyspace = Keyspace::new(
            &self.core,
            &self.connection,
            &self.port.space,
            &mut seat,
            now,
            None,
        );
        // The section is opened for these very names, so none of them is refused.
        act(&mut keyspace.open(names), names).unwrap_or_default()
    }
}

impl Dialect for Talk {
    const MESSAGE_BYTES_MAX: usize = limits::COMMAND_BYTES_MAX;
    const INCOMPLETE: &'static str = "a command did not complete in time";
    type Malformed = ProtocolError;

    /// Carries out the complete commands in `bytes`, until one of them blocks or the client leaves.
    fn decide(
        &mut self,
        bytes: &[u8],
        out: &mut BytesMut,
        out_high: usize,
    ) -> Result<Decided, ProtocolError> {
        if bytes.is_empty() {
            return Ok(Decided::default());
        }
        let shared = &*self.core.shared;
        let stage = Stage {
            core: &self.core,
            port: &self.port,
            connection: &self.connection,
            last_command: &self.last_command,
            now: shared.clock.now(),
        };
        let _batch = shared.engine.batch();
        let start = out.len();
        let mut decided = Decided::default();
        let mut seat = self.connection.seat.borrow_mut();
        // How many of the commands that come next have been looked at ahead of time.
        let mut warm = 0;
        let result = loop {
            if self.client.blocked.is_some() || self.client.is_leaving {
                break Ok(());
            }
            if out.len() >= out_high {
                decided.more = true;
                break Ok(());
            }
            self.reader.set_strict(!self.client.is_authenticated);
            let rest = &bytes[decided.bytes..];
            if warm == 0 {
                stage.warm_up(&self.client, rest);
                warm = engine::WARM_MAX;
            }
            warm -= 1;
            match self.reader.next(rest) {
                Ok(Some(used)) => {
                    decided.bytes += used;
                    let args: Args<'_> = self.reader.args(rest).collect();
                    if args.is_empty() {
                        continue;
                    }
                    decided.requests += 1;
                    let start = out.len();
                    // A client that needs no token is introduced by its first command, before it is
                    // carried out; another one by the command that shows the token.
                    let mut is_let_in = self.standing.admit(stage.core, &self.client);
                    if is_let_in {
                        stage.carry_out(&args, &mut self.client, &mut seat, out);
                        is_let_in = self.standing.admit(stage.core, &self.client);
                    }
                    if !is_let_in {
                        out.truncate(start);
                        Writer::new(out, self.client.version).error(NO_PLACE);
                        self.client.is_leaving = true;
                    }
                }
                Ok(None) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        drop(seat);
        let metrics = self.core.metrics();
        metrics.batches.bump();
        metrics.requests.add(decided.requests);
        metrics.redis_commands.add(decided.requests);
        self.core.replies.hold_back(&self.connection, out, start);
        decided.is_last = self.client.is_leaving;
        result.map(|()| decided)
    }

    fn is_blocked(&self) -> bool {
        self.client.blocked.is_some()
    }

    fn is_listening(&self) -> bool {
        let waits_for_lists = matches!(self.client.blocked, Some(Blocked::Lists { .. }));
        waits_for_lists || self.client.subscriptions() > 0
    }

    fn blocked_until(&self) -> Option<Instant> {
        match &self.client.blocked {
            Some(Blocked::Lists { until, .. }) => *until,
            _ => None,
        }
    }

    /// The time is up for which a list was waited for.
    fn end_block(&mut self) {
        self.leave_lines();
        self.client.blocked = None;
        let version = self.client.version;
        self.connection
            .send(|out| Writer::new(out, version).null_array());
    }

    fn look_again(&mut self) {
        match &self.client.blocked {
            // The delivery of the grant has answered it.
            Some(Blocked::Lock) if self.connection.waits.borrow().is_empty() => {
                self.client.blocked = None;
            }
            Some(Blocked::Lists { .. }) if self.client.voice.take_list_ready() => {
                let version = self.client.version;
                let id = self.connection.id;
                let mut reply = BytesMut::new();
                let is_answered = self.with_lists(|section, names| {
                    command::retry_pop(section, names, id, &mut Writer::new(&mut reply, version))
                });
                if is_answered {
                    self.client.blocked = None;
                    self.connection.send(|out| out.extend_from_slice(&reply));
                }
            }
            _ => {}
        }
    }

    fn stranger(&self) -> Option<&Stranger> {
        self.standing.stranger()
    }

    /// Leaves lines, channels and the list of clients.
    fn leave(&mut self) {
        self.leave_lines();
        self.client.blocked = None;
        let channels = &self.port.space.channels;
        self.client.unsubscribe_all(channels, self.connection.id);
        self.port.leave(&self.client.card);
    }
}

impl Stage<'_> {
    /// Has the engine read ahead for the keys of the next commands, if there are enough of them to
    /// make it worth while.
    fn warm_up(&self, client: &Client, unread: &[u8]) {
        if client.db == 0 && unread.len() >= WARM_BYTES_MIN {
            let keys = first_arguments(unread).take(engine::WARM_MAX);
            let keys = keys.filter_map(|key| Key::new(key).ok());
            self.core.shared.engine.warm(keys);
        }
    }

    fn carry_out(&self, args: &[&[u8]], client: &mut Client, seat: &mut Seat, out: &mut BytesMut) {
        let start = out.len();
        let answer = self.answer(args, client, seat, out);
        if let Err(refusal) = answer {
            // Whatever it had begun to say is not said.
            out.truncate(start);
            self.note_refusal(&refusal, args, client.db);
            self.core.metrics().redis_errors.bump();
            Writer::new(out, client.version).error(&refusal.to_string());
        }
    }

    /// Ends the connection of a peer that speaks HTTP, before anything behind that is carried out.
    #[cold]
    fn turn_away(&self, client: &mut Client) -> Refusal {
        client.is_leaving = true;
        let shared = &self.core.shared;
        shared.notices.say(Notice::SpeaksHttp, |unsaid| {
            let address = &self.connection.actor().address;
            tracing::warn!(
                %address,
                unsaid,
                "HTTP on the Redis port: the connection is closed. A web page in a browser on that machine may have sent it"
            );
        });
        Refusal::text("ERR this port speaks the protocol of Redis and not HTTP")
    }

    /// Counts a command that its sender may not send, and has it in the audit log.
    fn note_refusal(&self, refusal: &Refusal, args: &[&[u8]], db: u8) {
        let shared = &self.core.shared;
        if refusal.count(&shared.rights)
            && let Some(audit) = shared.audit()
            && let Some(command) = Command::find(args[0])
        {
            let key = command.first_key(args);
            let key = key.map(|key| [&name::prefix(db), key].concat());
            let (actor, why) = (self.connection.actor(), refusal.to_string());
            audit.refused(actor, key.as_deref(), command.name, why);
        }
    }

    fn answer(
        &self,
        args: &[&[u8]],
        client: &mut Client,
        seat: &mut Seat,
        out: &mut BytesMut,
    ) -> Result<(), Refusal> {
        let command = match check(args, client, self.last_command.get()) {
            Ok(command) => command,
            Err(_) if is_http(args[0]) => return Err(self.turn_away(client)),
            Err(refusal) => {
                // What cannot be queued spoils the whole transaction.
                if let Some(transaction) = &mut client.transaction {
                    transaction.is_broken = true;
                }
                // And the end of one that is itself wrong ends it.
                if args[0].eq_ignore_ascii_case(b"exec") {
                    client.transaction = None;
                    client.watched.clear();
                    let reason = refusal.to_string();
                    let reason = reason.strip_prefix("ERR ").unwrap_or(&reason);
                    return Err(Refusal::text(format!(
                        "EXECABORT Transaction discarded because of: {reason}"
                    )));
                }
                return Err(refusal);
            }
        };
        self.last_command.set(Some(command));
        if let Some(cluster) = &self.core.shared.cluster
            && !cluster.leads
            && !command.is_for_followers(args)
        {
            return Err(not_here(cluster, command, args, client));
        }
        let bounds = self.connection.bounds();
        if let Some(bounds) = &bounds
            && let Err(refusal) = permission::check_role(bounds, command, args)
        {
            if let Some(transaction) = &mut client.transaction {
                transaction.is_broken = true;
            }
            return Err(refusal);
        }
        let is_immediate = matches!(command.when, When::Immediate | When::Always);
        match client.transaction.take() {
            Some(transaction) if command.name == "exec" => {
                return self.execute(transaction, client, seat, out);
            }
            Some(mut transaction) if !is_immediate => {
                let queued = command::check_subcommand(command, args)
                    .and_then(|()| enqueue(&mut transaction, args));
                transaction.is_broken |= queued.is_err();
                client.transaction = Some(transaction);
                queued?;
                Writer::new(out, client.version).simple("QUEUED");
                return Ok(());
            }
            transaction => client.transaction = transaction,
        }
        let mut keyspace = Keyspace::new(
            self.core,
            self.connection,
            &self.port.space,
            seat,
            self.now,
            bounds.as_deref().map(|bounds| &**bounds),
        );
        let mut naming = Naming {
            port: self.port,
            keyspace: &mut keyspace,
            db: client.db,
            foreseen: None,
        };
        let target = command.target(args, &mut naming)?;
        if let Some(bounds) = &bounds {
            permission::check(bounds, command, args, &target)?;
            permission::charge(bounds, command, self.now)?;
        }
        let locked = if command.is_listing() {
            &[][..]
        } else {
            &target.names
        };
        let mut section = keyspace.open(locked);
        let mut writer = Writer::new(out, client.version);
        let mut call = Call {
            port: self.port,
            section: &mut section,
            client,
            connection: self.connection,
            args,
            names: &target.names,
            script: target.script,
            may_block: true,
        };
        call.check_known()?;
        (command.run)(&mut call, &mut writer)
    }

    /// `EXEC`: all commands in one section, unless a watched key has changed. All keys are named
    /// before it is opened.
    fn execute(
        &self,
        transaction: Transaction,
        client: &mut Client,
        seat: &mut Seat,
        out: &mut BytesMut,
    ) -> Result<(), Refusal> {
        let bounds = self.connection.bounds();
        let watched = std::mem::take(&mut client.watched);
        if transaction.is_broken {
            return Err(Refusal::text(
                "EXECABORT Transaction discarded because of previous errors.",
            ));
        }
        let mut keyspace = Keyspace::new(
            self.core,
            self.connection,
            &self.port.space,
            seat,
            self.now,
            bounds.as_deref().map(|bounds| &**bounds),
        );
        let mut plan = Plan::new(&transaction, client.db, self.port, &mut keyspace);
        plan.names
            .extend(watched.iter().map(|(name, _)| name.clone()));
        let mut section = keyspace.open(&plan.names);
        for (name, stamp) in &watched {
            if command::stamp(&mut section, name)? != *stamp {
                Writer::new(out, client.version).null_array();
                return Ok(());
            }
        }
        Writer::new(out, client.version).array(plan.commands.len());
        for planned in plan.commands {
            let start = out.len();
            let answer = planned.target.and_then(|target| {
                let version = client.version;
                if let Some(bounds) = &bounds {
                    permission::check(bounds, planned.command, &planned.args, &target)?;
                    permission::charge(bounds, planned.command, self.now)?;
                }
                let mut call = Call {
                    port: self.port,
                    section: &mut section,
                    client: &mut *client,
                    connection: self.connection,
                    args: &planned.args,
                    names: &target.names,
                    script: target.script,
                    may_block: false,
                };
                call.check_known()?;
                (planned.command.run)(&mut call, &mut Writer::new(out, version))
            });
            if let Err(refusal) = answer {
                out.truncate(start);
                self.note_refusal(&refusal, &planned.args, client.db);
                self.core.metrics().redis_errors.bump();
                Writer::new(out, client.version).error(&refusal.to_string());
            }
        }
        Ok(())
    }
}

/// Whether there is such a command, with so many arguments, and whether this client may send it
/// now.
fn check(
    args: &[&[u8]],
    client: &Client,
    last_command: Option<&'static Command>,
) -> Result<&'static Command, Refusal> {
    let again = last_command.filter(|last| args[0].eq_ignore_ascii_case(last.name.as_bytes()));
    let command = again
        .or_else(|| Command::find(args[0]))
        .ok_or_else(|| command::unknown(args))?;
    if !command.takes(args.len()) {
        return Err(command::wrong_number(command));
    }
    if !client.is_authenticated && command.when != When::Always {
        return Err(Refusal::text("NOAUTH Authentication required."));
    }
    let is_listening = client.version == Version::V2 && client.subscriptions() > 0;
    let may_while_listening =
        command.when == When::Listening || matches!(command.name, "quit" | "reset");
    if is_listening && !may_while_listening {
        return Err(Refusal::text(format!(
            "ERR Can't execute '{}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context",
            command.name
        )));
    }
    Ok(command)
}

/// Whether the first word of what should be a command is HTTP's. A page of any site can have a
/// browser post text to this port, and each line of that text would be a command. `Host:` is in
/// every request of a browser and before its text; the names are those that Redis itself looks for.
fn is_http(word: &[u8]) -> bool {
    word.eq_ignore_ascii_case(b"POST") || word.eq_ignore_ascii_case(b"Host:")
}

fn enqueue(transaction: &mut Transaction, args: &[&[u8]]) -> Result<(), Refusal> {
    let sizes = args
        .iter()
        .map(|argument| argument.len() + QUEUED_ARGUMENT_BYTES);
    let bytes: usize = sizes.sum();
    if transaction.commands.len() >= QUEUED_MAX || transaction.bytes + bytes > QUEUED_BYTES_MAX {
        return Err(Refusal::text(format!(
            "OOM a transaction has at most {QUEUED_MAX} commands and {QUEUED_BYTES_MAX} bytes, {QUEUED_ARGUMENT_BYTES} more for each argument"
        )));
    }
    transaction.bytes += bytes;
    let args = args.iter().map(|argument| (*argument).into()).collect();
    transaction.commands.push(args);
    Ok(())
}

/// What a node that does not lead says to a command that needs the leader, in the words that make
/// drivers look for it.
///
/// A client that has shown on this connection that it is in cluster mode follows `-MOVED`, and asks
/// again after `-CLUSTERDOWN`. Any other one hears `-READONLY`, and the connection is closed behind
/// it, as Sentinel has a master close its connections that became a replica: drivers that look for
/// their master when they connect, and clients behind a proxy, then find the new one. Cluster
/// clients keep connections that have sent nothing of cluster mode, too; the close has them read
/// the slots again.
#[cold]
fn not_here(
    cluster: &ClusterView,
    command: &Command,
    args: &[&[u8]],
    client: &mut Client,
) -> Refusal {
    let topology = Topology::now(cluster);
    let leader = topology.leader();
    if client.follows_moves {
        return Refusal::text(match leader {
            Some(leader) => {
                let slot = slot::of(command.first_key(args).unwrap_or_default());
                format!("MOVED {slot} {}:{}", leader.host, leader.port)
            }
            None => {
                "CLUSTERDOWN there is no leader now: a majority of the nodes must be up".to_owned()
            }
        });
    }
    client.is_leaving = true;
    let leader = match leader {
        Some(leader) => format!("the leader is at {}:{}", leader.host, leader.port),
        None => "no leader is known yet".to_owned(),
    };
    Refusal::text(format!(
        "READONLY You can't write against a read only replica: this node does not lead, {leader}"
    ))
}
