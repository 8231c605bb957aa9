//! What a POSIX session carries beside its names.

use rustix::fs::Statx;
use whimbrel_engine::{Fault, FaultCode};

use crate::session::{SET_ID, WriteSession};

/// Tells one file from every other that had or will have its name.
///
/// Inode numbers are used again at once after a file is removed, so the birth time is part of it
/// (zero where the file system has none). The device is not: other hosts number it differently.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Identity {
    inode: u64,
    born: i64,
    born_ns: u32,
}

impl Identity {
    pub fn of(stat: &Statx) -> Self {
        Self { inode: stat.stx_ino, born: stat.stx_btime.tv_sec, born_ns: stat.stx_btime.tv_nsec }
    }

    /// The same bytes on every host.
    pub fn to_bytes(self) -> [u8; 20] {
        let mut bytes = [0; 20];
        bytes[..8].copy_from_slice(&self.inode.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.born.to_le_bytes());
        bytes[16..].copy_from_slice(&self.born_ns.to_le_bytes());
        bytes
    }

    /// Whether the file system knows when a file was made; else only the inode tells files apart.
    pub fn has_birth(self) -> bool {
        (self.born, self.born_ns) != (0, 0)
    }
}

/// How the bytes get to their final name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Manner {
    /// Written under a hidden name, renamed at commit.
    Staged,
    /// Like `Staged`, shared by many writers, with a journal beside it.
    Continued,
    /// An existing file, changed where it is.
    InPlace,
    /// Like `InPlace`, and made by the session.
    Created,
    /// A device or pipe, opened where it is; has no size, name or attributes to change.
    Special,
}

impl Manner {
    /// Whether the bytes are under a hidden name until commit.
    pub fn is_hidden(self) -> bool {
        matches!(self, Self::Staged | Self::Continued)
    }
}

/// The decoded token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Token {
    pub manner: Manner,
    pub identity: Identity,
    /// Permission bits of the file that commit replaces: kept unless others are asked for. Never [`SET_ID`], whoever made the token:
    /// what the file was trusted with goes with its content, as after write(2).
    pub keep_mode: Option<u32>,
}

const VERSION: u8 = 1;
const LEN: usize = 26;
const NO_MODE: u32 = u32::MAX;

impl Token {
    pub fn encode(&self) -> Vec<u8> {
        let manner = match self.manner {
            Manner::Staged => 0,
            Manner::InPlace => 1,
            Manner::Special => 2,
            Manner::Continued => 3,
            Manner::Created => 4,
        };
        let mut bytes = Vec::with_capacity(LEN);
        bytes.extend_from_slice(&[VERSION, manner]);
        bytes.extend_from_slice(&self.identity.to_bytes());
        bytes.extend_from_slice(&self.keep_mode.unwrap_or(NO_MODE).to_le_bytes());
        bytes
    }

    /// Reads the token of a session and checks that its names fit together.
    pub fn of(session: &WriteSession) -> Result<Self, Fault> {
        let beside = session.path.parent() == session.staging.parent();
        let token = Self::decode(&session.token).filter(|token| {
            beside
                && match token.manner {
                    Manner::Staged | Manner::Continued => session.rename && session.staging != session.path,
                    Manner::InPlace | Manner::Created | Manner::Special => {
                        !session.rename && session.staging == session.path
                    }
                }
        });
        token.ok_or_else(|| {
            Fault::new(FaultCode::InvalidArgument, "join session")
                .on_path(session.path.as_bytes())
                .detail("not a session of this kind of storage")
        })
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; LEN] = bytes.try_into().ok()?;
        let manner = match (bytes[0], bytes[1]) {
            (VERSION, 0) => Manner::Staged,
            (VERSION, 1) => Manner::InPlace,
            (VERSION, 2) => Manner::Special,
            (VERSION, 3) => Manner::Continued,
            (VERSION, 4) => Manner::Created,
            _ => return None,
        };
        let mode = u32::from_le_bytes(bytes[22..26].try_into().ok()?);
        Some(Self {
            manner,
            identity: Identity {
                inode: u64::from_le_bytes(bytes[2..10].try_into().ok()?),
                born: i64::from_le_bytes(bytes[10..18].try_into().ok()?),
                born_ns: u32::from_le_bytes(bytes[18..22].try_into().ok()?),
            },
            keep_mode: (mode <= 0o7777).then_some(mode & !SET_ID),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_survive_the_journey() {
        for manner in [Manner::Staged, Manner::Continued, Manner::InPlace, Manner::Created, Manner::Special] {
            for keep_mode in [None, Some(0o640)] {
                let identity = Identity { inode: u64::MAX - 1, born: -5, born_ns: 999_999_999 };
                let token = Token { manner, identity, keep_mode };
                assert_eq!(Token::decode(&token.encode()), Some(token));
            }
        }
    }

    #[test]
    fn no_token_keeps_whom_a_program_runs_as() {
        let made = Token { manner: Manner::Staged, identity: Identity::default(), keep_mode: Some(0o6751) };
        assert_eq!(Token::decode(&made.encode()).and_then(|token| token.keep_mode), Some(0o751));
    }

    #[test]
    fn foreign_tokens_are_refused() {
        let good = Token { manner: Manner::Staged, identity: Identity::default(), keep_mode: None };
        let mut other_version = good.encode();
        other_version[0] = 9;
        let mut other_manner = good.encode();
        other_manner[1] = 5;
        for bad in [&[][..], &[1, 0], &other_version, &other_manner] {
            assert_eq!(Token::decode(bad), None);
        }
    }
}
