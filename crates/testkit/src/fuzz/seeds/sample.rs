//! Values of any deserialisable type, one for every variant of every enum inside it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::{self, Display};

use serde::de::value::U32Deserializer;
use serde::de::{self, DeserializeOwned, DeserializeSeed, IntoDeserializer, Visitor};

/// What sequences of bytes are made of: paths, however short.
const BYTES: &[u8] = b"/a";

/// All text: a name like others, and a network.
const TEXT: &str = "::";

/// One value for each variant of `T` and of the enums inside, by `Enum-Variant`, except variants that the value of another has
/// anyway; then a lean value of each variant of `T`, without options and with short sequences, by `lean-Enum-Variant`.
///
/// Changes of the types change the values, and nothing else does.
pub(super) fn samples<T: DeserializeOwned>() -> BTreeMap<String, T> {
    let mut found = BTreeMap::new();
    let mut planned = BTreeSet::new();
    // Variants to choose at the first enums met; all further ones take their first.
    let mut waiting = VecDeque::from([Vec::new()]);
    while let Some(script) = waiting.pop_front() {
        let (value, met) = sample::<T>(&script, false);
        if script.len() <= 1 {
            found.insert(format!("lean-{}", met[0].name()), sample::<T>(&script, true).0);
        }
        found.insert(met[script.len().saturating_sub(1)].name(), value);
        for (at, choice) in met.iter().enumerate() {
            planned.insert((choice.of, choice.taken));
            for other in 0..choice.variants.len() {
                if planned.insert((choice.of, other)) {
                    waiting.push_back(met[..at].iter().map(|met| met.taken).chain([other]).collect());
                }
            }
        }
    }
    found
}

fn sample<T: DeserializeOwned>(script: &[usize], lean: bool) -> (T, Vec<Choice>) {
    let mut sampler = Sampler { script, lean, met: Vec::new(), numbers: 0, bytes: 0 };
    let value = T::deserialize(&mut sampler).expect("plain values fit every type");
    (value, sampler.met)
}

/// An enum that was met, and the variant it got.
struct Choice {
    of: &'static str,
    variants: &'static [&'static str],
    taken: usize,
}

impl Choice {
    fn name(&self) -> String {
        format!("{}-{}", self.of, self.variants[self.taken])
    }
}

/// Makes up what it is asked for: growing numbers, so that the ends of ranges are behind their starts.
struct Sampler<'a> {
    script: &'a [usize],
    lean: bool,
    met: Vec<Choice>,
    numbers: u32,
    bytes: usize,
}

impl<'a> Sampler<'a> {
    fn number(&mut self) -> u32 {
        self.numbers += 1;
        self.numbers * 300
    }

    fn small(&mut self) -> u16 {
        self.numbers += 1;
        (self.numbers % 100 + 1) as u16
    }

    fn byte(&mut self) -> u8 {
        self.bytes += 1;
        BYTES[(self.bytes - 1) % BYTES.len()]
    }

    fn parts(&mut self, left: usize) -> Parts<'_, 'a> {
        self.bytes = 0;
        Parts { sampler: self, left }
    }

    fn length(&self) -> usize {
        if self.lean { 1 } else { 2 }
    }
}

#[derive(Debug)]
struct Refused(String);

impl Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Refused {}

impl de::Error for Refused {
    fn custom<T: Display>(message: T) -> Self {
        Self(message.to_string())
    }
}

/// Methods that answer with a number of their own type.
macro_rules! numbers {
    ($($method:ident $visit:ident $number:expr;)*) => {
        $(fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refused> {
            let number: fn(&mut Sampler<'_>) -> _ = $number;
            visitor.$visit(number(self))
        })*
    };
}

impl<'de> de::Deserializer<'de> for &mut Sampler<'_> {
    type Error = Refused;

    numbers! {
        deserialize_u8 visit_u8 |s| s.byte();
        deserialize_u16 visit_u16 |s| s.small();
        deserialize_u32 visit_u32 |s| s.number();
        deserialize_u64 visit_u64 |s| u64::from(s.number());
        deserialize_u128 visit_u128 |s| u128::from(s.number());
        deserialize_i8 visit_i8 |s| -(s.small() as i8);
        deserialize_i16 visit_i16 |s| -(s.small() as i16);
        deserialize_i32 visit_i32 |s| -(s.number() as i32);
        deserialize_i64 visit_i64 |s| -i64::from(s.number());
        deserialize_i128 visit_i128 |s| -i128::from(s.number());
        deserialize_f32 visit_f32 |s| f32::from(s.small());
        deserialize_f64 visit_f64 |s| f64::from(s.number());
        deserialize_bool visit_bool |s| !s.lean;
        deserialize_char visit_char |_| 'a';
        deserialize_str visit_str |_| TEXT;
        deserialize_string visit_str |_| TEXT;
        deserialize_identifier visit_str |_| "a";
    }

    fn is_human_readable(&self) -> bool {
        false
    }

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Refused> {
        Err(Refused("a binary form has no types of its own".into()))
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refused> {
        visitor.visit_unit()
    }

    fn deserialize_bytes<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refused> {
        visitor.visit_bytes(&BYTES[..self.length()])
    }

    fn deserialize_byte_buf<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refused> {
        self.deserialize_bytes(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refused> {
        if self.lean { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refused> {
        visitor.visit_unit()
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, Refused> {
        visitor.visit_unit()
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, Refused> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refused> {
        let length = self.length();
        visitor.visit_seq(self.parts(length))
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, left: usize, visitor: V) -> Result<V::Value, Refused> {
        visitor.visit_seq(self.parts(left))
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        left: usize,
        visitor: V,
    ) -> Result<V::Value, Refused> {
        visitor.visit_seq(self.parts(left))
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refused> {
        let length = self.length();
        visitor.visit_map(self.parts(length))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Refused> {
        visitor.visit_seq(self.parts(fields.len()))
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        of: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Refused> {
        let taken = self.script.get(self.met.len()).copied().unwrap_or(0);
        self.met.push(Choice { of, variants, taken });
        visitor.visit_enum(Variant { sampler: self, taken: taken as u32 })
    }
}

/// The elements of a sequence, map, tuple or struct.
struct Parts<'s, 'a> {
    sampler: &'s mut Sampler<'a>,
    left: usize,
}

impl Parts<'_, '_> {
    fn is_at_its_end(&mut self) -> bool {
        self.left = self.left.wrapping_sub(1);
        self.left == usize::MAX
    }
}

impl<'de> de::SeqAccess<'de> for Parts<'_, '_> {
    type Error = Refused;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Refused> {
        if self.is_at_its_end() { Ok(None) } else { seed.deserialize(&mut *self.sampler).map(Some) }
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.left)
    }
}

impl<'de> de::MapAccess<'de> for Parts<'_, '_> {
    type Error = Refused;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Refused> {
        if self.is_at_its_end() { Ok(None) } else { seed.deserialize(&mut *self.sampler).map(Some) }
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Refused> {
        seed.deserialize(&mut *self.sampler)
    }
}

/// The chosen variant of an enum.
struct Variant<'s, 'a> {
    sampler: &'s mut Sampler<'a>,
    taken: u32,
}

impl<'de> de::EnumAccess<'de> for Variant<'_, '_> {
    type Error = Refused;
    type Variant = Self;

    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, Self), Refused> {
        let index: U32Deserializer<Refused> = self.taken.into_deserializer();
        Ok((seed.deserialize(index)?, self))
    }
}

impl<'de> de::VariantAccess<'de> for Variant<'_, '_> {
    type Error = Refused;

    fn unit_variant(self) -> Result<(), Refused> {
        Ok(())
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, Refused> {
        seed.deserialize(self.sampler)
    }

    fn tuple_variant<V: Visitor<'de>>(self, left: usize, visitor: V) -> Result<V::Value, Refused> {
        visitor.visit_seq(self.sampler.parts(left))
    }

    fn struct_variant<V: Visitor<'de>>(self, fields: &'static [&'static str], visitor: V) -> Result<V::Value, Refused> {
        visitor.visit_seq(self.sampler.parts(fields.len()))
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, PartialEq, Deserialize)]
    enum Outer {
        Plain,
        Inner { inner: Inner, bytes: Vec<u8> },
        Maybe(Option<u64>, std::ops::Range<u64>),
    }

    #[derive(Debug, PartialEq, Deserialize)]
    enum Inner {
        One,
        Two(String),
    }

    #[test]
    fn every_variant_has_a_value_and_every_outer_one_a_lean_value() {
        let found = samples::<Outer>();
        let names: Vec<&str> = found.keys().map(String::as_str).collect();
        let wanted = ["Inner-Two", "Outer-Inner", "Outer-Maybe", "Outer-Plain"];
        assert_eq!(names, [&wanted[..], &["lean-Outer-Inner", "lean-Outer-Maybe", "lean-Outer-Plain"]].concat());
        let inner = Inner::Two("::".into());
        assert_eq!(found["Inner-Two"], Outer::Inner { inner, bytes: b"/a".to_vec() });
        assert_eq!(found["Outer-Maybe"], Outer::Maybe(Some(300), 600..900));
        assert_eq!(found["lean-Outer-Maybe"], Outer::Maybe(None, 300..600));
        assert_eq!(found["lean-Outer-Inner"], Outer::Inner { inner: Inner::One, bytes: b"/".to_vec() });
    }
}
