//! Values in the configuration file. A value of the wrong type is refused with the expected form.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{Error, SeqAccess, Unexpected, Visitor};

/// Form of a value in the configuration file.
pub(crate) trait InFile {
    const FORM: &'static str;
}

impl InFile for bool {
    const FORM: &'static str = "true or false";
}

/// TOML value.
pub(super) enum Toml<'a> {
    Text(&'a str),
    Integer(i64),
    Float(f64),
    Integers(Vec<i64>),
}

impl fmt::Display for Toml<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Toml::Text(text) => write!(f, "{text:?}"),
            Toml::Integer(number) => write!(f, "{number}"),
            Toml::Float(number) => write!(f, "{number}"),
            Toml::Integers(numbers) => write!(f, "{numbers:?}"),
        }
    }
}

/// Reason for which a TOML value is refused.
pub(super) enum Refused {
    /// The value has the wrong type.
    Type,
    /// The value has the wrong form. The message names the expected one.
    Value,
    /// The value is refused for this reason.
    Because(anyhow::Error),
}

impl From<anyhow::Error> for Refused {
    fn from(reason: anyhow::Error) -> Refused {
        Refused::Because(reason)
    }
}

/// Value that is made of a TOML value. Implement `Deserialize` for it with [`deserialize_from_toml`].
pub(super) trait FromToml: InFile + Sized {
    fn from_toml(value: Toml<'_>) -> Result<Self, Refused>;

    /// Writes the expected form in error messages.
    fn expecting(f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(Self::FORM)
    }
}

/// Visitor of the value of a `T`.
pub(super) struct Form<T>(pub(super) PhantomData<T>);

impl<T: FromToml> Form<T> {
    fn visit<E: Error>(&self, value: Toml<'_>, shown: Unexpected<'_>) -> Result<T, E> {
        let text = value.to_string();
        T::from_toml(value).map_err(|refused| match refused {
            Refused::Type => E::invalid_type(shown, self),
            Refused::Value => E::invalid_value(shown, self),
            // On the command line clap adds the value.
            Refused::Because(reason) if reason.to_string().starts_with("expected ") => {
                E::custom(format_args!("invalid value {text}: {reason}"))
            }
            Refused::Because(reason) => E::custom(reason),
        })
    }
}

impl<'de, T: FromToml> Visitor<'de> for Form<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        T::expecting(f)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        self.visit(Toml::Text(text), Unexpected::Str(text))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<T, E> {
        self.visit(Toml::Integer(number), Unexpected::Signed(number))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<T, E> {
        self.visit(Toml::Float(number), Unexpected::Float(number))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<T, A::Error> {
        // A value that takes no list refuses an empty one, and so any.
        if let Err(Refused::Type) = T::from_toml(Toml::Integers(Vec::new())) {
            return Err(A::Error::invalid_type(Unexpected::Seq, &self));
        }
        let mut numbers = Vec::new();
        while let Some(number) = list.next_element()? {
            numbers.push(number);
        }
        self.visit(Toml::Integers(numbers), Unexpected::Seq)
    }
}

/// Implements `Deserialize` for a type that is [`FromToml`].
macro_rules! deserialize_from_toml {
    ($name:ident) => {
        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<$name, D::Error> {
                deserializer.deserialize_any($crate::config::in_file::Form(std::marker::PhantomData))
            }
        }
    };
}
pub(super) use deserialize_from_toml;
