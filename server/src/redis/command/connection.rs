//! Commands about the connection itself: HELLO, AUTH, SELECT, CLIENT and their relatives.

use super::{Call, integer, is, unknown_subcommand, wrong_arity};
use crate::core::cluster_view::ClusterView;
use crate::redis::name::DATABASES;
use crate::redis::port::Card;
use crate::redis::refusal::Refusal;
use protocol::resp::{Version, Writer};

/// The version of Redis that this port announces. Clients choose their commands by it.
pub(crate) const REDIS_VERSION: &str = "8.4.0";

const WRONG_PASSWORD: &str = "WRONGPASS invalid username-password pair or user is disabled.";
const NO_PASSWORD: &str = "ERR AUTH <password> called without any password configured for the default user. Are you sure your configuration is correct?";

/// The longest name that a client can give itself.
const NAME_BYTES_MAX: usize = 256;

/// `HELLO [version [AUTH user password] [SETNAME name]]`.
pub(super) fn hello(call: &mut Call<'_, '_>, out: &mut Writer<'_>) -> Result<(), Refusal> {
    let mut version = call.client.version;
    let mut name = None;
    let mut options = call.args[1..].iter().copied();
    if let Some(number) = options.next() {
        version = match protocol::resp::parse_integer(number) {
            Some(2) => Version::V2,
            Some(3) => Version::V3,
            Some(_) => return Err(Refusal::text("NOPROTO unsupported protocol version")),
            None => {
                return Err(Refusal::text(
                    "ERR Protocol version is not an integer or out of range",
                ));
            }
        };
    }
    while let Some(option) = options.next() {
        let mut value = || {
            options.next().ok_or_else(|| {
                let shown = String::from_utf8_lossy(option).into_owned();
                Refusal::text(format!("ERR Syntax error in HELLO option '{shown}'"))
            })
        };
        if is(option, "AUTH") {
            let (_user, password) = (value()?, value()?);
            authenticate(call, password)?;
        } else if is(option, "SETNAME") {
            name = Some(client_name(value()?)?);
        } else {
            let shown = &option[..option.len().min(super::SHOWN_BYTES_MAX)];
            let shown = String::from_utf8_lossy(shown);
            return Err(Refusal::text(format!(
                "ERR Syntax error in HELLO option '{shown}'"
            )));
        }
    }
    if !call.client.is_authenticated {
        return Err(Refusal::text(
            "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH <user> <pass> option can be used to authenticate the client and select the RESP protocol version at the same time",
        ));
    }
    if let Some(name) = name {
        call.rename(name);
    }
    call.client.speak(version);
    out.set_version(version);
    out.map(7);
    out.bulk(b"server");
    out.bulk(b"redis");
    out.bulk(b"version");
    out.bulk(REDIS_VERSION.as_bytes());
    out.bulk(b"proto");
    out.integer(match version {
        Version::V2 => 2,
        Version::V3 => 3,
    });
    out.bulk(b"id");
    out.integer(call.client.card.id as i64);
    out.bulk(b"mode");
    let cluster = call.section.core().shared.cluster.as_ref();
    out.bulk(mode(cluster).as_bytes());
    out.bulk(b"role");
    out.bulk(match cluster {
        Some(cluster) if !cluster.leads => b"replica",
        _ => b"master",
    });
    out.bulk(b"modules");
    out.array(0);
    Ok(())
}

/// What a server calls its mode.
pub(super) fn mode(cluster: Option<&ClusterView>) -> &'static str {
    match cluster {
        Some(_) => "cluster",
        None => "standalone",
    }
}

/// `AUTH [user] password`: the password is one of the server's tokens. The user does not matter.
pub(super) fn auth(call: &mut Call<'_, '_>, out: &mut Writer<'_>) -> Result<(), Refusal> {
    let password = match call.args[1..] {
        [password] if !call.section.core().shared.rights.is_required() => {
            let _ = password;
            return Err(Refusal::text(NO_PASSWORD));
        }
        [password] | [_, password] => password,
        _ => return Err(Refusal::Syntax),
    };
    authenticate(call, password)?;
    out.simple("OK");
    Ok(())
}

fn authenticate(call: &mut Call<'_, '_>, password: &[u8]) -> Result<(), Refusal> {
    let core = call.section.core();
    let Some(entitlement) = core.shared.rights.of_token(password) else {
        core.metrics().hellos_refused.bump();
        core.shared.rights.count_refused();
        if let Some(audit) = core.shared.audit() {
            let why = "a wrong password".to_owned();
            audit.refused(call.connection.actor(), None, "auth", why);
        }
        return Err(Refusal::text(WRONG_PASSWORD));
    };
    // What was begun with other rights is not gone on with under these.
    if call.client.is_authenticated && call.connection.entitlement().name() != entitlement.name() {
        let channels = &call.section.space.channels;
        call.client.unsubscribe_all(channels, call.connection.id);
        call.client.transaction = None;
        call.client.watched.clear();
    }
    call.connection.entitle(entitlement);
    call.client.is_authenticated = true;
    Ok(())
}

pub(super) fn quit(call: &mut Call<'_, '_>, out: &mut Writer<'_>) -> Result<(), Refusal> {
    call.client.is_leaving = true;
    out.simple("OK");
    Ok(())
}

/// Puts the connection back into the state of a new one.
pub(super) fn reset(call: &mut Call<'_, '_>, out: &mut Writer<'_>) -> Result<(), Refusal> {
    let core = call.section.core();
    let client = &mut *call.client;
    client.unsubscribe_all(&call.section.space.channels, call.connection.id);
    client.transaction = None;
    client.watched.clear();
    client.follows_moves = false;
    client.db = 0;
    client.speak(Version::V2);
    client.is_authenticated = !core.shared.rights.is_required();
    call.connection
        .entitle(core.shared.rights.of_stranger().clone());
    call.rename(String::new());
    out.set_version(Version::V2);
    out.simple("RESET");
    Ok(())
}

pub(super) fn ping(call: &mut Call<'_, '_>, out: &mut Writer<'_>) -> Result<(), Refusal> {
    if call.args.len() > 2 {
        return Err(wrong_arity("ping"));
    }
    let message = call.args.get(1);
    // In version 2, a listener reads the answer among its messages, so it looks like one.
    if call.client.version == Version::V2 && call.client.subscriptions() > 0 {
        out.array(2);
        out.bulk(b"pong");
        out.bulk(message.copied().unwrap_or_default());
        return Ok(());
    }
    match message {
        Some(message) => out.bulk(message),
        None => out.simple("PONG"),
    }
    Ok(())
}

pub(super) fn echo(call: &mut Call<'_, '_>, out: &mut Writer<'_>) -> Result<(), Refusal> {
    out.bulk(call.args[1]);
    Ok(())
}

pub(super) fn select(call: &mut Call<'_, '_>, out: &mut Writer<'_>) -> Result<(), Refusal> {
    call.client.db = database(call.args)?;
    out.simple("OK");
    Ok(())
}

/// The database that a `SELECT` names. The plan of a transaction and the command itself both ask
/// here, so they agree.
pub(super) fn database(args: &[&[u8]]) -> Result<u8, Refusal> {
    let number = integer(args[1])?;
    let db = u8::try_from(number).ok().filter(|db| *db < DATABASES);
    db.ok_or_else(|| Refusal::text("ERR DB index is out of range"))
}

pub(super) fn client(call: &mut Call<'_, '_>, out: &mut Writer<'_>) -> Result<(), Refusal> {
    let (subcommand, args) = (call.args[1], &call.args[2..]);
    let card = call.client.card.clone();
    let exactly = |count: usize, name: &str| match args.len() == count {
        true => Ok(()),
        false => Err(wrong_arity(&format!("client|{name}"))),
    };
    if is(subcommand, "SETNAME") {
        exactly(1, "setname")?;
        call.rename(client_name(args[0])?);
        out.simple("OK");
    } else if is(subcommand, "GETNAME") {
        exactly(0, "getname")?;
        let name = card.name.lock();
        match name.is_empty() {
            true => out.null(),
            false => out.bulk(name.as_bytes()),
        }
    } else if is(subcommand, "ID") {
        exactly(0, "id")?;
        out.integer(card.id as i64);
    } else if is(subcommand, "SETINFO") {
        exactly(2, "setinfo")?;
        set_info(&card, args[0], args[1])?;
        out.simple("OK");
    } else if is(subcommand, "INFO") {
        exactly(0, "info")?;
        out.verbatim_text(&describe(&card));
    } else if is(subcommand, "LIST") {
        let lines: String = call
            .port
            .clients()
            .iter()
            .map(|card| describe(card))
            .collect();
        out.verbatim_text(&lines);
    } else if is(subcommand, "CAPA") || is(subcommand, "NO-EVICT") || is(subcommand, "NO-TOUCH") {
        // What these ask for happens anyway.
        out.simple("OK");
    } else {
        return Err(unknown_subcommand(subcommand, "CLIENT"));
    }
    Ok(())
}

fn set_info(card: &Card, attribute: &[u8], value: &[u8]) -> Result<(), Refusal> {
    let value = client_name(value)?;
    let mut library = card.library.lock();
    if is(attribute, "LIB-NAME") {
        library.0 = value;
    } else if is(attribute, "LIB-VER") {
        library.1 = value;
    } else {
        let shown = &attribute[..attribute.len().min(super::SHOWN_BYTES_MAX)];
        let shown = String::from_utf8_lossy(shown);
        return Err(Refusal::text(format!("ERR Unrecognized option '{shown}'")));
    }
    Ok(())
}

/// A client's name. It stands in `CLIENT LIST`, one client a line, so spaces and line ends are
/// refused.
fn client_name(bytes: &[u8]) -> Result<String, Refusal> {
    let is_fine = bytes.iter().all(u8::is_ascii_graphic);
    match std::str::from_utf8(bytes) {
        Ok(name) if is_fine && name.len() <= NAME_BYTES_MAX => Ok(name.to_owned()),
        _ => Err(Refusal::text(
            "ERR Client names cannot contain spaces, newlines or special characters.",
        )),
    }
}

fn describe(card: &Card) -> String {
    let library = card.library.lock();
    format!(
        "id={} addr={} name={} lib-name={} lib-ver={}\n",
        card.id,
        card.address,
        card.name.lock(),
        library.0,
        library.1
    )
}
