//! Networks: who may be at the other end.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A network in CIDR notation (RFC 4632 §3.1, RFC 4291 §2.3); a lone address is a network of one.
///
/// IPv4 addresses in IPv6 clothes (`::ffff:10.0.0.1`) are IPv4 addresses, in networks as in what is looked up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Cidr {
    address: IpAddr,
    bits: u8,
}

/// A network that cannot be understood.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CidrError {
    /// Neither an address nor `ADDRESS/BITS`.
    #[error("a network is ADDRESS/BITS, such as 192.0.2.0/24 or 2001:db8::/32, or one address")]
    Form,
    /// Bits are set behind the network's own.
    #[error("the address has bits set behind its first {bits}: {proper} is meant, or a longer network")]
    HostBits {
        /// How many belong to the network.
        bits: u8,
        /// The network without them.
        proper: String,
    },
}

impl Cidr {
    /// The network of the first `bits` of an address.
    ///
    /// # Errors
    /// [`CidrError`]: more bits than the address has, or bits set behind them.
    pub fn new(address: IpAddr, bits: u8) -> Result<Self, CidrError> {
        let cidr = Self::around(address, bits).ok_or(CidrError::Form)?;
        if cidr.address == address.to_canonical() {
            Ok(cidr)
        } else {
            Err(CidrError::HostBits { bits: cidr.bits, proper: cidr.to_string() })
        }
    }

    /// The network of so many bits that an address is in; `None` for more bits than it has.
    pub fn around(address: IpAddr, bits: u8) -> Option<Self> {
        let canonical = address.to_canonical();
        let bits = match (address, canonical) {
            // Of `::ffff:0:0/96` and longer the first 96 bits are the clothes; a shorter network holds more than IPv4.
            (IpAddr::V6(_), IpAddr::V4(_)) if bits <= 128 => bits.checked_sub(96)?,
            _ => bits,
        };
        let address = match canonical {
            IpAddr::V4(v4) => IpAddr::V4(Ipv4Addr::from_bits(v4.to_bits() & mask_32(bits)?)),
            IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & mask_128(bits)?)),
        };
        Some(Self { address, bits })
    }

    /// Whether an address is in it.
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(network), IpAddr::V4(address)) => {
                mask_32(self.bits).is_some_and(|mask| address.to_bits() & mask == network.to_bits())
            }
            (IpAddr::V6(network), IpAddr::V6(address)) => {
                mask_128(self.bits).is_some_and(|mask| address.to_bits() & mask == network.to_bits())
            }
            _ => false,
        }
    }
}

fn mask_32(bits: u8) -> Option<u32> {
    (bits <= 32).then(|| u32::MAX.checked_shl(32 - u32::from(bits)).unwrap_or(0))
}

fn mask_128(bits: u8) -> Option<u128> {
    (bits <= 128).then(|| u128::MAX.checked_shl(128 - u32::from(bits)).unwrap_or(0))
}

impl FromStr for Cidr {
    type Err = CidrError;

    fn from_str(text: &str) -> Result<Self, CidrError> {
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| CidrError::Form)?;
        let bits = match bits {
            // `+8` and `008` are numbers for Rust.
            Some(bits) if bits.bytes().all(|byte| byte.is_ascii_digit()) && (bits == "0" || !bits.starts_with('0')) => {
                bits.parse().map_err(|_| CidrError::Form)?
            }
            Some(_) => return Err(CidrError::Form),
            None if address.is_ipv4() => 32,
            None => 128,
        };
        Self::new(address, bits)
    }
}

impl TryFrom<String> for Cidr {
    type Error = CidrError;

    fn try_from(text: String) -> Result<Self, CidrError> {
        text.parse()
    }
}

impl From<Cidr> for String {
    fn from(cidr: Cidr) -> Self {
        cidr.to_string()
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}

/// A list of networks; an empty one holds nobody.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Networks(pub Vec<Cidr>);

impl Networks {
    /// Whether an address is in one of them.
    pub fn contains(&self, address: IpAddr) -> bool {
        self.0.iter().any(|network| network.contains(address))
    }
}

impl FromStr for Networks {
    type Err = CidrError;

    /// Networks with commas between them, as on a command line.
    fn from_str(text: &str) -> Result<Self, CidrError> {
        text.split(',').map(|network| network.trim().parse()).collect::<Result<_, _>>().map(Self)
    }
}
