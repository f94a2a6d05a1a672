package dns

import (
	"fmt"
	"slices"

	"fairway/model"
)

// takeProblems tells what will surprise the user of the names. What was found before
// stands while nothing changed that could be surprising.
func (z *Zone) takeProblems(prev *Zone, c change) {
	surprising := func(p *part) bool { return z.dangles(p.svc) }
	if prev != nil && prev.cfg == z.cfg && slices.Equal(prev.namespaces, z.namespaces) &&
		!slices.ContainsFunc(c.gone, surprising) && !slices.ContainsFunc(c.come, surprising) {
		z.problems = prev.problems
		return
	}
	z.problems = z.findProblems()
}

// dangles tells whether svc points at a name that was meant to be completed.
func (z *Zone) dangles(svc *model.Service) bool {
	return svc.Type == model.ExternalName && dangling(svc.ExternalName) && !z.cfg.CompleteSvc
}

func (z *Zone) findProblems() []model.Problem {
	var out []model.Problem
	for _, svc := range z.from {
		if z.dangles(svc) {
			out = append(out, svc.Problem("spec.externalName", "DanglingExternalName", fmt.Sprintf(
				"%q is answered as the absolute name %q, which no resolver knows; write %q, or let the DNS server complete such names",
				svc.ExternalName, svc.ExternalName+".", svc.ExternalName+"."+trimDot(z.cfg.Domain))))
		}
	}
	for _, ns := range z.namespaces {
		if isTLD(ns) {
			out = append(out, model.Problem{
				Object: model.Ref{Kind: "Namespace", Name: model.Name{Name: ns}}, Field: "metadata.name", Reason: "NamespaceShadowsTLD",
				Message: fmt.Sprintf("%q is also a top-level domain of the Internet: for every Pod a Service NAME here hides the public name NAME.%s; "+
					"rename the namespace, or write public names with a final dot", ns, ns),
			})
		}
	}
	return out
}

func trimDot(name string) string { return name[:len(name)-1] }

// isTLD knows the country codes and the first generic top-level domains. Newer ones
// that are everyday words, as dev, app or shop, are left out: as names of namespaces
// they are too common, and too few public names are short enough to be hidden.
func isTLD(name string) bool {
	switch name {
	case "com", "net", "org", "edu", "gov", "mil", "int", "arpa", "info", "biz",
		"ac", "ad", "ae", "af", "ag", "ai", "al", "am", "ao", "ar", "at", "au", "aw", "az", "ba", "bb", "bd", "be", "bf",
		"bg", "bh", "bi", "bj", "bm", "bn", "bo", "br", "bs", "bt", "bw", "by", "bz", "ca", "cc", "cd", "cf", "cg", "ch",
		"ci", "cl", "cm", "cn", "co", "cr", "cu", "cv", "cx", "cy", "cz", "de", "dj", "dk", "dm", "do", "dz", "ec", "ee",
		"eg", "es", "et", "eu", "fi", "fj", "fm", "fo", "fr", "ga", "gd", "ge", "gg", "gh", "gi", "gl", "gm", "gn", "gq",
		"gr", "gs", "gt", "gu", "gy", "hk", "hn", "hr", "ht", "hu", "id", "ie", "il", "im", "in", "io", "iq", "ir", "is",
		"it", "je", "jm", "jo", "jp", "ke", "kg", "kh", "ki", "km", "kn", "kr", "kw", "ky", "kz", "la", "lb", "lc", "li",
		"lk", "lr", "ls", "lt", "lu", "lv", "ly", "ma", "mc", "md", "me", "mg", "mk", "ml", "mm", "mn", "mo", "mr", "ms",
		"mt", "mu", "mv", "mw", "mx", "my", "mz", "na", "ne", "nf", "ng", "ni", "nl", "no", "np", "nr", "nu", "nz", "om",
		"pa", "pe", "pg", "ph", "pk", "pl", "pm", "pn", "ps", "pt", "pw", "py", "qa", "re", "ro", "rs", "ru", "rw", "sa",
		"sb", "sc", "sd", "se", "sg", "sh", "si", "sk", "sl", "sm", "sn", "so", "sr", "ss", "st", "su", "sv", "sx", "sy",
		"sz", "tc", "td", "tf", "tg", "th", "tj", "tk", "tl", "tm", "tn", "to", "tr", "tt", "tv", "tw", "tz", "ua", "ug",
		"uk", "us", "uy", "uz", "va", "vc", "ve", "vg", "vn", "vu", "wf", "ws", "ye", "yt", "za", "zm", "zw":
		return true
	}
	return false
}
