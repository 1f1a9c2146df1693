//! The opening of a connection: [`Hello`] and its answer, [`Welcome`].
//!
//! The layout of both, and of `HelloRefused`, never changes: peers must understand each other
//! before they can agree on a version. Later versions add optional fields only.

use crate::codec::{OPTION_HEADER_BYTES, Reader, Writer, option_array, tag};
use crate::error::DecodeError;
use crate::field::{ClientName, NodeAddresses, ServerName, SessionKey, Token};
use crate::frame::HEADER_BYTES;
use crate::limits;
use crate::{MAGIC, PROTOCOL_VERSION, PROTOCOL_VERSION_MIN};

/// On `Hello`: join the session or be refused.
pub(crate) const FLAG_JOIN: u8 = 0x01;
/// On `Welcome`.
const FLAG_RESUMED: u8 = 0x01;

/// The opening of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello<'a> {
    /// The oldest version the client speaks.
    pub version_min: u16,
    /// The newest version the client speaks.
    pub version_max: u16,
    /// How long the session should outlive its last sign of life; 0 leaves it to the server.
    pub session_ttl_ms: u32,
    /// Shown to clients that are refused because of this one.
    pub client_name: ClientName<'a>,
    /// Empty where the server asks for none.
    pub token: Token<'a>,
    /// Which session the connection is for.
    pub opening: Opening,
}

/// Which session a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opening {
    /// A new one.
    New,
    /// This one if it still lives, otherwise a new one: for the first connection after a break.
    Resume(SessionKey),
    /// This one or none: for further connections, which must not open a session each.
    Join(SessionKey),
}

impl<'a> Hello<'a> {
    /// Opens a new session with every version this crate speaks, no token, and the server's choice
    /// of TTL.
    pub fn new(client_name: ClientName<'a>) -> Self {
        Self {
            version_min: PROTOCOL_VERSION_MIN,
            version_max: PROTOCOL_VERSION,
            session_ttl_ms: 0,
            client_name,
            token: Token::default(),
            opening: Opening::New,
        }
    }

    /// The longest `Hello`, as its fields stand below.
    const FRAME_BYTES_MAX: usize = HEADER_BYTES
        + (MAGIC.len() + 2 + 2 + 4)
        + (2 + limits::CLIENT_NAME_BYTES_MAX)
        + (OPTION_HEADER_BYTES + limits::TOKEN_BYTES_MAX)
        + (OPTION_HEADER_BYTES + SessionKey::BYTES);

    pub(crate) fn read(flags: u8, reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let magic = reader.array("magic")?;
        if magic != MAGIC {
            return Err(DecodeError::BadMagic { magic });
        }
        let version_min = reader.u16("version_min")?;
        let version_max = reader.u16("version_max")?;
        let session_ttl_ms = reader.u32_at_most("session_ttl_ms", limits::SESSION_TTL_MS_MAX)?;
        let client_name = ClientName::read(reader)?;

        let mut token = Token::default();
        let mut session = None;
        let mut options = reader.options();
        while let Some((tag, value)) = options.next()? {
            match tag {
                tag::TOKEN => token = Token::new(value)?,
                tag::SESSION_KEY => {
                    session = Some(SessionKey::from_wire(option_array(tag, value)?));
                }
                _ => {}
            }
        }
        Ok(Self {
            version_min,
            version_max,
            session_ttl_ms,
            client_name,
            token,
            opening: match (session, flags & FLAG_JOIN != 0) {
                (Some(session), false) => Opening::Resume(session),
                (Some(session), true) => Opening::Join(session),
                (None, false) => Opening::New,
                (None, true) => {
                    return Err(DecodeError::MissingField {
                        field: "the session to join",
                    });
                }
            },
        })
    }

    pub(crate) fn write(&self, writer: &mut Writer<'_>) {
        writer.array(MAGIC);
        writer.u16(self.version_min);
        writer.u16(self.version_max);
        writer.u32(self.session_ttl_ms);
        writer.bytes(self.client_name.as_bytes());
        writer.option(tag::TOKEN, self.token.as_bytes());
        if let Opening::Resume(session) | Opening::Join(session) = self.opening {
            writer.option(tag::SESSION_KEY, &session.to_wire());
        }
    }

    pub(crate) const fn flags(&self) -> u8 {
        match self.opening {
            Opening::Join(_) => FLAG_JOIN,
            Opening::New | Opening::Resume(_) => 0,
        }
    }
}

/// The terms of an open connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Welcome<'a> {
    /// The version both speak from here on.
    pub version: u16,
    /// Whether the session is the one that was asked for.
    pub is_resumed: bool,
    /// The session, and what the client needs to resume it.
    pub session: SessionKey,
    /// How long the session outlives its last sign of life.
    pub session_ttl_ms: u32,
    /// The longest request frame the server takes.
    pub frame_bytes_max: u32,
    /// How many requests one connection may have unanswered.
    pub in_flight_max: u32,
    /// For how many of a session's latest requests the server remembers the outcome, in case they
    /// are repeated.
    pub remembered_max: u32,
    /// Name and version of the server.
    pub server_name: ServerName<'a>,
    /// The server restarted and does not know all holders: claim your locks within this time.
    /// Mostly absent.
    pub grace_ms: Option<u32>,
    /// Where clients reach the nodes of the server's cluster, this one included. Empty where it is
    /// a server of its own.
    pub addresses: NodeAddresses<'a>,
}

impl<'a> Welcome<'a> {
    /// The longest `Welcome`, as its fields stand below.
    const FRAME_BYTES_MAX: usize = HEADER_BYTES
        + (2 + SessionKey::BYTES + 4 + 4 + 4 + 4)
        + (2 + limits::SERVER_NAME_BYTES_MAX)
        + (OPTION_HEADER_BYTES + 4)
        + (OPTION_HEADER_BYTES + limits::NODE_ADDRESSES_BYTES_MAX);

    pub(crate) fn read(flags: u8, reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let mut welcome = Self {
            version: reader.u16("version")?,
            session: SessionKey::from_wire(reader.array("session")?),
            session_ttl_ms: reader.u32("session_ttl_ms")?,
            frame_bytes_max: reader.u32("frame_bytes_max")?,
            in_flight_max: reader.u32("in_flight_max")?,
            remembered_max: reader.u32("remembered_max")?,
            server_name: ServerName::read(reader)?,
            is_resumed: flags & FLAG_RESUMED != 0,
            grace_ms: None,
            addresses: NodeAddresses::default(),
        };
        let mut options = reader.options();
        while let Some((tag, value)) = options.next()? {
            match tag {
                tag::GRACE_MS => {
                    welcome.grace_ms = Some(u32::from_le_bytes(option_array(tag, value)?));
                }
                tag::ADDRESSES => welcome.addresses = NodeAddresses::from_wire(value)?,
                _ => {}
            }
        }
        Ok(welcome)
    }

    pub(crate) fn write(&self, writer: &mut Writer<'_>) {
        writer.u16(self.version);
        writer.array(self.session.to_wire());
        writer.u32(self.session_ttl_ms);
        writer.u32(self.frame_bytes_max);
        writer.u32(self.in_flight_max);
        writer.u32(self.remembered_max);
        writer.bytes(self.server_name.as_bytes());
        if let Some(grace_ms) = self.grace_ms {
            writer.option(tag::GRACE_MS, &grace_ms.to_le_bytes());
        }
        writer.option(tag::ADDRESSES, self.addresses.as_bytes());
    }

    pub(crate) const fn flags(&self) -> u8 {
        if self.is_resumed { FLAG_RESUMED } else { 0 }
    }
}

// The server keeps no more for a stranger, and a client needs no larger buffer for the answer.
const _: () = assert!(Hello::FRAME_BYTES_MAX <= limits::HELLO_FRAME_BYTES_MAX as usize);
const _: () = assert!(Welcome::FRAME_BYTES_MAX <= limits::HELLO_FRAME_BYTES_MAX as usize);

#[cfg(test)]
mod tests;
