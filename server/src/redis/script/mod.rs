//! Scripts, recognised and not interpreted.

use super::name::Name;
use super::port::{Port, Sha};
use super::refusal::Refusal;
use super::section::Section;
use crate::core::Core;
use protocol::resp::Writer;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Script {}

pub(crate) struct ScriptCall<'a> {
    pub(crate) db: u8,
    pub(crate) keys: &'a [Name<'a>],
    pub(crate) more_keys: &'a [Name<'a>],
    pub(crate) args: &'a [&'a [u8]],
}

impl Script {
    pub(crate) fn is_read_only(self) -> bool {
        match self {}
    }
}

pub(crate) fn recognise_sha(_: &Sha) -> Option<Script> {
    None
}

pub(crate) fn recognise_text(_: &[u8]) -> (Sha, Option<Script>) {
    (Sha::default(), None)
}

pub(crate) fn database(script: Script, _: u8, _: &[&[u8]]) -> u8 {
    match script {}
}

pub(crate) fn more_names(script: Script, _: &Core, _: &Port, _: u8) -> Vec<Name<'static>> {
    match script {}
}

pub(crate) fn fenced_token(_: &mut Section<'_>, _: &Name<'_>) -> Option<u64> {
    None
}

pub(crate) fn run(
    script: Script,
    _: &mut Section<'_>,
    _: &ScriptCall<'_>,
    _: &mut Writer<'_>,
) -> Result<(), Refusal> {
    match script {}
}
