//! What has a file's final name at a server where a rename would replace it, whatever it is.

use whimbrel_engine::listing::ObjectKind;

use crate::client::facts;

/// What has the final name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Occupant {
    /// Nothing, or a file: a rename does no harm. Or nobody was asked.
    #[default]
    Replaceable,
    /// A symbolic link, which is written through.
    Link,
    /// A device or a pipe, which is written to, and does not give back what was written.
    Device,
}

impl Occupant {
    /// From the line of an MLST reply; a server whose line says nothing may have a file there.
    pub fn described(line: &[u8]) -> Self {
        match facts::described(line, true).map(|object| object.kind) {
            Some(ObjectKind::Other) => Self::Device,
            Some(ObjectKind::Symlink { .. }) => Self::Link,
            Some(ObjectKind::File | ObjectKind::Directory) | None => Self::Replaceable,
        }
    }

    /// Whether it is written to, and no file takes its place.
    pub fn is_written_to(self) -> bool {
        self != Self::Replaceable
    }

    /// Whether it does not give back what was written.
    pub fn is_device(self) -> bool {
        self == Self::Device
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_and_devices_are_written_to_and_anything_else_is_replaced() {
        let of = Occupant::described;
        assert_eq!(of(b"type=file;size=3; /d/f"), Occupant::Replaceable);
        assert_eq!(of(b"type=dir; /d/f"), Occupant::Replaceable);
        assert_eq!(of(b"no facts at all"), Occupant::Replaceable);
        assert_eq!(of(b"type=OS.unix=chr; /d/f"), Occupant::Device);
        assert_eq!(of(b"type=file;UNIX.slink=/x; /d/f"), Occupant::Link);
    }

    #[test]
    fn a_link_gives_back_what_was_written() {
        assert!(Occupant::Link.is_written_to() && !Occupant::Link.is_device());
        assert!(Occupant::Device.is_written_to() && Occupant::Device.is_device());
        assert!(!Occupant::default().is_written_to());
    }
}
