//! Lines of a control connection inside TLS records, as GSI has them: the token of a message is one or more whole records.

use whimbrel_engine::fault::FaultCode;
use whimbrel_proto::protect::Seal;
use whimbrel_sys::ssl::holds_bytes;

use super::machine::{Plain, TlsMachine};
use crate::fault::TrustFault;

impl Seal for TlsMachine {
    type Fault = TrustFault;

    fn seal(&mut self, plain: &[u8]) -> Result<Vec<u8>, TrustFault> {
        self.write(plain)?;
        self.transmit().ok_or_else(|| broken("nothing came of a line"))
    }

    /// Records belong to the token that they came in: one that goes on in the next token is none.
    fn open(&mut self, token: &[u8], into: &mut Vec<u8>) -> Result<(), TrustFault> {
        let before = into.len();
        self.feed(token);
        while self.unread() > 0 || holds_bytes(self.ssl()) {
            match self.read(into)? {
                Plain::Bytes(_) => {}
                Plain::Nothing => break,
                Plain::Closed => return Err(broken("the other side ended the protection")),
            }
        }
        if self.unread() > 0 || holds_bytes(self.ssl()) {
            return Err(broken("a protected line is cut short"));
        }
        if into.len() == before {
            return Err(broken("a protected line has no message"));
        }
        Ok(())
    }

    /// No cipher without encryption is ever agreed.
    fn hides(&self) -> bool {
        true
    }
}

fn broken(why: &str) -> TrustFault {
    TrustFault::new(FaultCode::EncryptionFailed, why)
}
