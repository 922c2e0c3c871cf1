"""One name per language, so that a benchmark's ISO 639-3 codes and a model's language table can be compared.

Dialects and languages of their own keep apart what a corpus keeps apart: Egyptian ``arz`` is not ``ar``, Nynorsk ``nn``
is not ``nb``, Cantonese ``yue`` is not ``zh``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

# ISO 639-1 = ISO 639-2/T and 639-3, then 639-2/B, then the individual languages that corpora mean by the macrolanguage.
_CODES = """
aa=aar ab=abk ae=ave af=afr ak=aka am=amh an=arg ar=ara,arb as=asm av=ava ay=aym,ayr az=aze,azj ba=bak be=bel bg=bul
bi=bis bm=bam bn=ben bo=bod,tib br=bre bs=bos ca=cat ce=che ch=cha co=cos cr=cre cs=ces,cze cu=chu cv=chv cy=cym,wel
da=dan de=deu,ger dv=div dz=dzo ee=ewe el=ell,gre en=eng eo=epo es=spa et=est,ekk eu=eus,baq fa=fas,per,pes ff=ful
fi=fin fj=fij fo=fao fr=fra,fre fy=fry ga=gle gd=gla gl=glg gn=grn,gug gu=guj gv=glv ha=hau he=heb hi=hin ho=hmo hr=hrv
ht=hat hu=hun hy=hye,arm hz=her ia=ina id=ind ie=ile ig=ibo ii=iii ik=ipk io=ido is=isl,ice it=ita iu=iku,ike ja=jpn
jv=jav ka=kat,geo kg=kon kj=kua ki=kik kk=kaz kl=kal km=khm kn=kan ko=kor kr=kau ks=kas ku=kur,kmr kv=kom kw=cor ky=kir
la=lat lb=ltz lg=lug li=lim ln=lin lo=lao lt=lit lu=lub lv=lav,lvs mg=mlg,plt mh=mah mi=mri,mao mk=mkd,mac ml=mal
mn=mon,khk mr=mar ms=msa,may,zsm mt=mlt my=mya,bur na=nau nb=nob nd=nde ne=nep,npi ng=ndo nl=nld,dut nn=nno nr=nbl
nv=nav ny=nya oc=oci oj=oji om=orm,gaz or=ori,ory os=oss pa=pan pi=pli pl=pol ps=pus,pbu pt=por qu=que,quz rm=roh rn=run
ro=ron,rum,mol ru=rus rw=kin sa=san sc=srd sd=snd se=sme sg=sag si=sin sk=slk,slo sl=slv sm=smo sn=sna so=som
sq=sqi,alb,als sr=srp ss=ssw st=sot su=sun sv=swe sw=swa,swh ta=tam te=tel tg=tgk th=tha ti=tir tk=tuk tl=tgl tn=tsn
to=ton tr=tur ts=tso tt=tat tw=twi ty=tah ug=uig uk=ukr ur=urd uz=uzb,uzn ve=ven vi=vie vo=vol wa=wln wo=wol xh=xho
yi=yid,ydd yo=yor za=zha zh=zho,chi,cmn zu=zul
"""
# Withdrawn codes, and names that mean one language in practice: Norwegian without more is Bokmål, Filipino is Tagalog.
_OTHER = {"iw": "he", "in": "id", "ji": "yi", "jw": "jv", "mo": "ro", "no": "nb", "nor": "nb", "fil": "tl"}

CANONICAL = {
    long: short for short, names in (e.split("=") for e in _CODES.split()) for long in names.split(",")
} | _OTHER


def canonical(code: str) -> str:
    """The two-letter code where the language has one, else the code itself; script and region are dropped.

    >>> [canonical(c) for c in ("deu", "de", "pt_BR", "zh-Hans", "cmn", "lvs", "nob", "arz")]
    ['de', 'de', 'pt', 'zh', 'zh', 'lv', 'nb', 'arz']
    """
    language = re.split(r"[-_@.]", code.strip().lower())[0]
    return CANONICAL.get(language, language)


def known_as(code: str, known: Iterable[str], owner: str, advice: str) -> str:
    """The one of the codes ``known`` that is ``code`` or else means the same language.

    Raises ValueError where none or several do: "``owner`` has no language ...; ``advice``".
    """
    known = list(known)
    if code in known:
        return code
    alike = [other for other in known if canonical(other) == canonical(code)]
    if len(alike) == 1:
        return alike[0]
    found = f"several that it may mean, {', '.join(alike)}" if alike else f"only {', '.join(known)}"
    raise ValueError(f"{owner} has no language {code!r}, {found}; {advice}")
