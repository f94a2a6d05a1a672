package proxy

import "fairway/model"

// AnyGone tells whether a Service this plan serves is no longer served by snap's.
func (p *Plan) AnyGone(snap *model.Snapshot) bool {
	before, _ := model.Changed(p.services, snap.Services)
	for _, svc := range before {
		if len(p.portsOf(svc.Name)) == 0 {
			continue
		}
		if now := snap.Service(svc.Name); now != svc && !stillServed(svc, now) {
			return true
		}
	}
	return false
}

// Remaining is snap with only the Services that this plan serves already or that have
// no cluster address: what names and announcements may say before the rules change.
func (p *Plan) Remaining(snap *model.Snapshot) *model.Snapshot {
	return snap.Filter(func(s *model.Service) bool {
		if !s.HasVIP() {
			return true
		}
		for _, old := range p.portsOf(s.Name) {
			if old.serviceUID == s.UID {
				return true
			}
		}
		return false
	})
}

func stillServed(old, now *model.Service) bool {
	return now != nil && now.UID == old.UID && now.HasVIP()
}
