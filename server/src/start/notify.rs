//! Tells systemd, or a supervisor like it, when the server is ready, reloads and stops.
//!
//! The protocol is one datagram to the socket that `NOTIFY_SOCKET` names: a path, or a name in the
//! abstract namespace after an `@`. Sending is all there is to it, so it is done here and not by a
//! crate. Where no supervisor asked to be told, nothing happens; a message that cannot be sent is
//! logged and changes nothing.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

const VARIABLE: &str = "NOTIFY_SOCKET";

/// The supervisor to tell, if there is one.
pub(crate) struct Notifier {
    socket: Option<OsString>,
}

impl Notifier {
    pub(crate) fn from_environment() -> Self {
        Notifier {
            socket: std::env::var_os(VARIABLE),
        }
    }

    /// Clients can connect.
    pub(crate) fn ready(&self) {
        self.tell("READY=1\nSTATUS=clients can connect");
    }

    /// The server has heard SIGHUP and reads its files again. [`Notifier::ready`] says that it is
    /// done. The time tells the supervisor which of its requests this answers
    /// (`Type=notify-reload`).
    pub(crate) fn reloading(&self) {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        let monotonic_us = now.tv_sec * 1_000_000 + now.tv_nsec / 1_000;
        self.tell(&format!(
            "RELOADING=1\nMONOTONIC_USEC={monotonic_us}\nSTATUS=reading tokens and opening the audit log again"
        ));
    }

    /// The end has begun.
    pub(crate) fn stopping(&self) {
        self.tell("STOPPING=1\nSTATUS=answering what is in flight");
    }

    fn tell(&self, state: &str) {
        if let Some(socket) = &self.socket
            && let Err(error) = send(socket, state)
        {
            tracing::warn!("cannot tell {VARIABLE} {}: {error}", socket.display());
        }
    }
}

fn send(socket: &OsStr, state: &str) -> io::Result<()> {
    let address = address(socket)?;
    let sent_bytes = UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address)?;
    assert_eq!(sent_bytes, state.len(), "a datagram is sent whole");
    Ok(())
}

fn address(socket: &OsStr) -> io::Result<SocketAddr> {
    #[cfg(target_os = "linux")]
    if let Some(name) = socket.as_bytes().strip_prefix(b"@") {
        use std::os::linux::net::SocketAddrExt;
        return SocketAddr::from_abstract_name(name);
    }
    SocketAddr::from_pathname(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hear(socket: &UnixDatagram) -> String {
        let mut buffer = [0; 256];
        let heard_bytes = socket.recv(&mut buffer).unwrap();
        String::from_utf8(buffer[..heard_bytes].to_vec()).unwrap()
    }

    #[test]
    fn ready_reloading_and_stopping_arrive_at_a_path() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        let notifier = Notifier {
            socket: Some(path.into()),
        };
        notifier.ready();
        notifier.reloading();
        notifier.stopping();
        assert!(hear(&socket).starts_with("READY=1\n"));
        let reloading = hear(&socket);
        let since = reloading.strip_prefix("RELOADING=1\nMONOTONIC_USEC=");
        let since = since.and_then(|rest| rest.lines().next()).unwrap();
        assert!(since.parse::<u64>().unwrap() > 0, "{reloading}");
        assert!(hear(&socket).starts_with("STOPPING=1\n"));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn ready_arrives_at_an_abstract_name() {
        use std::os::linux::net::SocketAddrExt;
        let name = format!("fencepost-test-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let socket = UnixDatagram::bind_addr(&address).unwrap();
        let notifier = Notifier {
            socket: Some(format!("@{name}").into()),
        };
        notifier.ready();
        assert!(hear(&socket).starts_with("READY=1\n"));
    }

    #[test]
    fn nobody_to_tell_is_fine_and_so_is_somebody_who_is_gone() {
        Notifier { socket: None }.ready();
        let gone = Some("/nonexistent/notify".into());
        Notifier { socket: gone }.ready();
    }
}
